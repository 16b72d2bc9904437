package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// Requests as a Java 5.5.0 client puts them on the wire, key for key. A send is a template copied into the output
// buffer with its digits patched in place, so every patched field has a fixed width: topics end in five digits,
// opaques have ten. A pull is one request for 32 messages and may cost a little more: it is put together from parts.

const (
	firstOpaque  = 1_000_000_000
	topicDigits  = 5
	maxTopics    = 100_000
	maxQueues    = 10
	headerOffset = 8
	serialDigits = 12
	tags         = 4
)

const sendHeader = `{"code":310,"extFields":{"a":"BENCH_PRODUCER","b":"@topic","c":"TBW102","d":"4","e":"0",` +
	`"f":"0","g":"1700000000000","h":"0","i":"@delay@keysUNIQ_KEY\u0001@unique\u0002WAIT\u0001true\u0002TAGS\u0001TagA\u0002",` +
	`"j":"0","k":"false","m":"false","n":"@broker"},"flag":0,"language":"JAVA","opaque":1000000000,` +
	`"serializeTypeCurrentRPC":"JSON","version":513}`

// The subscription comes with the request (sysFlag 4): no heartbeat is needed. No suspension.
const pullHeader = `{"code":11,"extFields":{"queueId":"@queue","maxMsgBytes":"262144","maxMsgNums":"@batch","sysFlag":"4",` +
	`"suspendTimeoutMillis":"15000","commitOffset":"0","bname":"@broker","topic":"@topic","queueOffset":"@offset",` +
	`"expressionType":"TAG","subVersion":"0","subscription":"*","consumerGroup":"BENCH_CONSUMER"},` +
	`"flag":0,"language":"JAVA","opaque":@opaque,"serializeTypeCurrentRPC":"JSON","version":513}`

const routeHeader = `{"code":105,"extFields":{"topic":"TBW102"},"flag":0,"language":"JAVA","opaque":1000000000,` +
	`"serializeTypeCurrentRPC":"JSON","version":513}`

type sendTemplate struct {
	frame                              []byte
	opaque, topic, queue, born, unique int // positions of the patched fields
	tag, keys                          int // keys 0: the messages have none
}

func newSendTemplate(topic, broker string, body []byte, keys bool, delayLevel int) *sendTemplate {
	delayProperty := ""
	if delayLevel > 0 {
		delayProperty = `DELAY\u0001` + strconv.Itoa(delayLevel) + `\u0002`
	}
	keysProperty := ""
	if keys {
		keysProperty = `KEYS\u0001order_` + strings.Repeat("0", serialDigits) + `\u0002`
	}
	header := strings.NewReplacer(
		"@delay", delayProperty,
		"@keys", keysProperty,
		"@topic", topicName(topic, 0),
		"@unique", "7F000001"+"2B67"+"4E0E2F2A"+strings.Repeat("0", serialDigits),
		"@broker", broker,
	).Replace(sendHeader)
	t := &sendTemplate{frame: frame([]byte(header), body)}
	t.topic = after(t.frame, `"b":"`) + len(topic)
	t.queue = after(t.frame, `"e":"`)
	t.born = after(t.frame, `"g":"`)
	t.unique = after(t.frame, `UNIQ_KEY\u0001`) + 20
	t.opaque = after(t.frame, `"opaque":`)
	t.tag = after(t.frame, `TAGS\u0001Tag`)
	if keys {
		t.keys = after(t.frame, `order_`)
	}
	return t
}

func (t *sendTemplate) put(out []byte, opaque int64, topic, queue int, bornMs int64, serial uint64) []byte {
	at := len(out)
	out = append(out, t.frame...)
	request := out[at:]
	decimal(request[t.opaque:t.opaque+10], opaque)
	decimal(request[t.topic:t.topic+topicDigits], int64(topic))
	decimal(request[t.born:t.born+13], bornMs)
	hexadecimal(request[t.unique:t.unique+serialDigits], serial)
	if t.keys > 0 {
		hexadecimal(request[t.keys:t.keys+serialDigits], serial)
	}
	request[t.tag] = byte('A' + serial%tags)
	request[t.queue] = byte('0' + queue)
	return out
}

type pullTemplate struct {
	topic  string
	before [4]string // the header between queue, topic, offset and opaque
	end    string
}

func newPullTemplate(topic, broker string, batch int) *pullTemplate {
	header := strings.NewReplacer("@batch", strconv.Itoa(batch), "@broker", broker).Replace(pullHeader)
	t := &pullTemplate{topic: topic}
	for i, mark := range []string{"@queue", "@topic", "@offset", "@opaque"} {
		t.before[i], header, _ = strings.Cut(header, mark)
	}
	t.end = header
	return t
}

func (t *pullTemplate) put(out []byte, opaque int64, topic, queue int, offset int64) []byte {
	at := len(out)
	out = append(out, make([]byte, headerOffset)...)
	out = strconv.AppendInt(append(out, t.before[0]...), int64(queue), 10)
	out = append(append(out, t.before[1]...), topicName(t.topic, topic)...)
	out = strconv.AppendInt(append(out, t.before[2]...), offset, 10)
	out = strconv.AppendInt(append(out, t.before[3]...), opaque, 10)
	out = append(out, t.end...)
	mark(out[at:], len(out)-at-headerOffset)
	return out
}

func frame(header, body []byte) []byte {
	out := make([]byte, headerOffset, headerOffset+len(header)+len(body))
	out = append(append(out, header...), body...)
	mark(out, len(header))
	return out
}

// mark writes the two length fields of a whole frame; the top byte of the second, 0, says JSON.
func mark(frame []byte, header int) {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	binary.BigEndian.PutUint32(frame[4:], uint32(header))
}

func after(frame []byte, text string) int {
	at := bytes.Index(frame, []byte(text))
	if at < 0 {
		panic("template without " + text)
	}
	return at + len(text)
}

func topicName(prefix string, index int) string {
	return fmt.Sprintf("%s%0*d", prefix, topicDigits, index)
}

// decimal writes value into all of field, with leading zeros.
func decimal(field []byte, value int64) {
	for i := len(field) - 1; i >= 0; i-- {
		field[i] = byte('0' + value%10)
		value /= 10
	}
}

func hexadecimal(field []byte, value uint64) {
	for i := len(field) - 1; i >= 0; i-- {
		field[i] = "0123456789ABCDEF"[value&15]
		value >>= 4
	}
}

func payload(size int) []byte {
	body := make([]byte, size)
	for i := range body {
		body[i] = byte('a' + i%26)
	}
	return body
}
