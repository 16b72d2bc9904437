package main

import (
	"fmt"
	"time"
)

// sends spreads messages over topics and, within a topic, over its queues, both round robin.
type sends struct {
	template *sendTemplate
	topics   int
	queues   int
	inFlight int
	serial   uint64
	queueOf  []int8 // of the request in each slot
	answers  uint64
}

func newSends(template *sendTemplate, s settings, topics, queues int) *sends {
	return &sends{
		template: template, topics: topics, queues: queues, inFlight: s.inFlight,
		serial: uint64(time.Now().UnixNano()) & 0xFF_FFFF_FFFF, queueOf: make([]int8, s.connections*s.inFlight),
	}
}

func (w *sends) request(out []byte, conn, slot int, opaque int64) []byte {
	serial := w.serial
	w.serial++
	queue := int(serial / uint64(w.topics) % uint64(w.queues))
	w.queueOf[conn*w.inFlight+slot] = int8(queue)
	return w.template.put(out, opaque, int(serial%uint64(w.topics)), queue, time.Now().UnixMilli(), serial)
}

func (w *sends) answer(conn, slot int, a answer) (int, error) {
	if a.code != codeOK {
		return 0, fmt.Errorf("send answered %d: %.300s", a.code, a.header)
	}
	if w.answers++; w.answers%sampleEvery == 1 {
		return 1, checkSent(a.header, int(w.queueOf[conn*w.inFlight+slot]))
	}
	return 1, nil
}

// pulls walks queues from their first message; a slot that reaches the end of its queue goes on with another.
type pulls struct {
	template *pullTemplate
	inFlight int
	slots    int
	queues   int // of one topic
	all      int // queues of all topics
	cursors  []cursor
	barren   int // queues in a row that gave nothing
}

type cursor struct {
	queue    int // among all
	offset   int64
	fruitful bool
}

func newPulls(template *pullTemplate, s settings, topics, queues int) *pulls {
	w := &pulls{template: template, inFlight: s.inFlight, slots: s.connections * s.inFlight, queues: queues, all: topics * queues}
	w.cursors = make([]cursor, w.slots)
	for i := range w.cursors {
		w.cursors[i].queue = i % w.all
	}
	return w
}

func (w *pulls) request(out []byte, conn, slot int, opaque int64) []byte {
	at := w.cursors[conn*w.inFlight+slot]
	return w.template.put(out, opaque, at.queue/w.queues, at.queue%w.queues, at.offset)
}

func (w *pulls) answer(conn, slot int, a answer) (int, error) {
	at := &w.cursors[conn*w.inFlight+slot]
	switch a.code {
	case codeOK:
		return w.found(at, a)
	case codePullEmpty, codePullMoved:
		return 0, w.wrap(at)
	}
	err := fmt.Errorf("pull of queue %d at %d answered %d: %.300s", at.queue, at.offset, a.code, a.header)
	*at = cursor{queue: (at.queue + w.slots) % w.all}
	return 0, err
}

func (w *pulls) found(at *cursor, a answer) (int, error) {
	count, err := records(a.body)
	if err != nil {
		return 0, err
	}
	next, err := number(a.header, nextBeginKey)
	if err != nil {
		return 0, err
	}
	if next != at.offset+int64(count) || count == 0 {
		return count, fmt.Errorf("pull at %d: %d records, nextBeginOffset %d", at.offset, count, next)
	}
	at.offset, at.fruitful = next, true
	if end, err := number(a.header, maxOffsetKey); err != nil || next < end {
		return count, err
	}
	return count, w.wrap(at)
}

func (w *pulls) wrap(at *cursor) error {
	if w.barren++; at.fruitful {
		w.barren = 0
	}
	*at = cursor{queue: (at.queue + w.slots) % w.all}
	if w.barren > w.all+w.slots {
		return fmt.Errorf("none of %d queues has a message", w.all)
	}
	return nil
}
