package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func headerOf(t *testing.T, request []byte) map[string]any {
	t.Helper()
	header := request[headerOffset : headerOffset+int(request[5])<<16+int(request[6])<<8+int(request[7])]
	var out map[string]any
	if err := json.Unmarshal(header, &out); err != nil {
		t.Fatalf("%v in %s", err, header)
	}
	return out
}

func TestASendCarriesWhatWasPatchedIn(t *testing.T) {
	template := newSendTemplate("bench_", "broker-a", payload(3), true, 0)
	request := template.put(nil, 1_000_000_042, 7, 3, 1_731_000_000_123, 0xABC)
	header := headerOf(t, request)
	fields := header["extFields"].(map[string]any)
	if header["opaque"].(float64) != 1_000_000_042 || fields["b"] != "bench_00007" || fields["e"] != "3" {
		t.Fatalf("header %v", header)
	}
	if fields["g"] != "1731000000123" || !strings.Contains(fields["i"].(string), "7F0000012B674E0E2F2A000000000ABC\x02") {
		t.Fatalf("fields %v", fields)
	}
	if !strings.HasPrefix(fields["i"].(string), "KEYS\x01order_000000000ABC\x02UNIQ_KEY\x01") {
		t.Fatalf("properties %q", fields["i"])
	}
	if !bytes.HasSuffix(request, []byte("abc")) {
		t.Fatal("the body is missing")
	}
}

func TestAPullNamesItsQueueAndOffset(t *testing.T) {
	header := headerOf(t, newPullTemplate("bench_", "broker-a", 32).put(nil, firstOpaque, 12, 2, 345))
	fields := header["extFields"].(map[string]any)
	if fields["topic"] != "bench_00012" || fields["queueId"] != "2" || fields["queueOffset"] != "345" || fields["maxMsgNums"] != "32" {
		t.Fatalf("fields %v", fields)
	}
}

func TestAnAnswerIsCutOnlyWhenWhole(t *testing.T) {
	whole := frame([]byte(`{"code":0,"extFields":{"queueId":"1"},"flag":1,"opaque":1000000005}`), []byte("xy"))
	for end := 0; end < len(whole); end++ {
		if _, size, wanted, err := cut(whole[:end]); size != 0 || wanted <= end || err != nil {
			t.Fatalf("%d bytes: size %d, wanted %d, %v", end, size, wanted, err)
		}
	}
	a, size, _, err := cut(append(whole, 0, 0))
	if err != nil || size != len(whole) || a.code != 0 || a.opaque != 1_000_000_005 || string(a.body) != "xy" {
		t.Fatalf("%+v, size %d, %v", a, size, err)
	}
}

func TestAFrameThatCannotBeIsAnError(t *testing.T) {
	for _, data := range [][]byte{
		{0x7F, 0, 0, 0, 0, 0, 0, 0},
		{0, 0, 0, 5, 0, 0, 0, 9, 'x'},
		{0, 0, 0, 5, 1, 0, 0, 1, 'x'},
	} {
		if _, _, _, err := cut(data); err == nil {
			t.Fatalf("%v was accepted", data)
		}
	}
}

func TestRecordsAreCountedByTheirLengths(t *testing.T) {
	if n, err := records([]byte{0, 0, 0, 5, 1, 0, 0, 0, 4}); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := records([]byte{0, 0, 0, 9, 1}); err == nil {
		t.Fatal("a record beyond the end was counted")
	}
}

func TestAQuantileIsAtMostThreePercentHigh(t *testing.T) {
	var h histogram
	for ns := int64(1); ns <= 100_000; ns++ {
		h.add(ns)
	}
	for _, q := range []float64{0.5, 0.99, 0.999} {
		exact := q * 100
		if got := h.quantile(q); got < exact*0.999 || got > exact*1.035 {
			t.Errorf("quantile %v: %v us, exact %v", q, got, exact)
		}
	}
}

func TestAPullThatReachesTheEndGoesOnWithAnotherQueue(t *testing.T) {
	w := newPulls(newPullTemplate("bench_", "broker-a", 32), settings{connections: 1, inFlight: 1}, 1, 2)
	a := answer{
		header: []byte(`{"code":0,"extFields":{"nextBeginOffset":"1","maxOffset":"1"},"flag":1}`),
		body:   []byte{0, 0, 0, 4},
	}
	if n, err := w.answer(0, 0, a); n != 1 || err != nil || w.cursors[0].queue != 1 || w.cursors[0].offset != 0 {
		t.Fatal(n, err, w.cursors[0])
	}
}

func TestEmptyQueuesAloneAreAnError(t *testing.T) {
	w := newPulls(newPullTemplate("bench_", "broker-a", 32), settings{connections: 1, inFlight: 1}, 1, 2)
	var err error
	for i := 0; i < 10 && err == nil; i++ {
		_, err = w.answer(0, 0, answer{code: codePullEmpty})
	}
	if err == nil {
		t.Fatal("a walk over empty queues went on for ever")
	}
}

func TestARunWithoutItsServerFails(t *testing.T) {
	e := &engine{settings: settings{address: "127.0.0.1:1", connections: 1, inFlight: 1, duration: time.Second}}
	if _, _, err := e.run(); err == nil {
		t.Fatal("connected to nothing")
	}
}
