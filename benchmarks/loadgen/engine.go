package main

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// The engine keeps N connections with M requests in flight each, on one thread over epoll. A read event is one
// read(2), all its answers, and one write(2) with the requests that follow them: the cheapest a client can be.

// A workload makes requests and judges answers. conn and slot name the place of a request among those in flight.
type workload interface {
	request(out []byte, conn, slot int, opaque int64) []byte
	answer(conn, slot int, a answer) (messages int, err error)
}

type settings struct {
	address     string
	connections int
	inFlight    int
	warmup      time.Duration
	duration    time.Duration
	count       int64 // > 0: that many requests in all, instead of warm-up and duration
	pids        []int
}

// A slot's requests have the opaques firstOpaque + slot + k * inFlight: an answer leads back to its slot.
type slot struct {
	opaque int64 // of the request in flight, or of the next
	sentAt int64
	busy   bool
}

type connection struct {
	fd      int
	in      []byte
	filled  int
	out     []byte
	sent    int
	waiting bool // for room in the socket: EPOLLOUT asked
	slots   []slot
}

type engine struct {
	settings
	work      workload
	poll      int
	conns     []*connection
	issued    int64
	inTheAir  int64
	stopping  bool
	measuring bool
	tally     tally
}

type tally struct {
	requests int64
	messages int64
	bytesIn  int64
	latency  histogram
	errors   int64
	samples  []string
}

const (
	inputSize  = 256 << 10
	stallLimit = 20 * time.Second
	maxSamples = 5
)

// interrupted is set by a signal: the run ends as if its time were over.
var interrupted atomic.Bool

func (e *engine) run() (begin, end usage, err error) {
	if e.poll, err = syscall.EpollCreate1(0); err != nil {
		return
	}
	defer e.close()
	for i := 0; i < e.connections; i++ {
		if err = e.connect(); err != nil {
			return
		}
	}
	for i := range e.conns {
		if err = e.start(i); err != nil {
			return
		}
	}
	return e.loop()
}

func (e *engine) loop() (begin, end usage, err error) {
	started := time.Now()
	lastAnswer, answered := started, int64(-1)
	events := make([]syscall.EpollEvent, 256)
	if e.count > 0 {
		e.measuring = true
		if begin, err = readUsage(e.pids); err != nil {
			return
		}
	}
	for {
		now := time.Now()
		switch {
		case e.count > 0:
			e.stopping = e.issued >= e.count || interrupted.Load()
		case !e.measuring && now.Sub(started) >= e.warmup && !e.stopping:
			if begin, err = readUsage(e.pids); err != nil {
				return
			}
			e.measuring = true
		case e.measuring && (now.Sub(begin.at) >= e.duration || interrupted.Load()):
			if end, err = readUsage(e.pids); err != nil {
				return
			}
			e.measuring, e.stopping = false, true
		}
		if e.stopping && e.inTheAir == 0 {
			if e.count > 0 {
				end, err = readUsage(e.pids)
			}
			return
		}
		if done := e.issued - e.inTheAir; done != answered {
			answered, lastAnswer = done, now
		} else if now.Sub(lastAnswer) > stallLimit {
			return begin, end, fmt.Errorf("no answer for %s with %d requests in flight", stallLimit, e.inTheAir)
		}
		if err = e.step(events); err != nil {
			return
		}
	}
}

func (e *engine) step(events []syscall.EpollEvent) error {
	n, err := rawWait(e.poll, events, 10)
	if err != nil && !errors.Is(err, syscall.EINTR) {
		return err
	}
	for i := 0; i < n; i++ {
		index := int(events[i].Fd)
		if events[i].Events&syscall.EPOLLOUT != 0 {
			if err := e.flush(index); err != nil {
				return err
			}
		}
		if events[i].Events&^uint32(syscall.EPOLLOUT) != 0 {
			if err := e.read(index); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *engine) connect() error {
	address, err := net.ResolveTCPAddr("tcp4", e.address)
	if err != nil {
		return err
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	c := &connection{fd: fd, in: make([]byte, inputSize), slots: make([]slot, e.inFlight)}
	for i := range c.slots {
		c.slots[i].opaque = firstOpaque + int64(i)
	}
	e.conns = append(e.conns, c)
	target := &syscall.SockaddrInet4{Port: address.Port}
	copy(target.Addr[:], address.IP.To4())
	if err := syscall.Connect(fd, target); err != nil {
		return fmt.Errorf("connect %s: %w", e.address, err)
	}
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err != nil {
		return err
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		return err
	}
	return e.control(syscall.EPOLL_CTL_ADD, len(e.conns)-1, syscall.EPOLLIN)
}

// control files a connection under its index, not its descriptor.
func (e *engine) control(operation, index int, events uint32) error {
	event := syscall.EpollEvent{Events: events, Fd: int32(index)}
	return syscall.EpollCtl(e.poll, operation, e.conns[index].fd, &event)
}

func (e *engine) start(index int) error {
	now := time.Now().UnixNano()
	for slot := 0; slot < e.inFlight; slot++ {
		e.issue(index, slot, now)
	}
	return e.flush(index)
}

func (e *engine) issue(index, at int, now int64) {
	if e.stopping || (e.count > 0 && e.issued >= e.count) {
		return
	}
	c := e.conns[index]
	place := &c.slots[at]
	place.busy, place.sentAt = true, now
	c.out = e.work.request(c.out, index, at, place.opaque)
	e.issued++
	e.inTheAir++
}

func (e *engine) read(index int) error {
	c := e.conns[index]
	n, err := rawRead(c.fd, c.in[c.filled:])
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("connection %d: %w", index, err)
	}
	if n == 0 {
		return fmt.Errorf("the server closed connection %d with %d requests in flight", index, e.inTheAir)
	}
	c.filled += n
	if e.measuring {
		e.tally.bytesIn += int64(n)
	}
	if err := e.answers(index); err != nil {
		return err
	}
	return e.flush(index)
}

func (e *engine) answers(index int) error {
	c := e.conns[index]
	now := time.Now().UnixNano()
	at := 0
	for {
		a, size, wanted, err := cut(c.in[at:c.filled])
		if err != nil {
			return err
		}
		if size == 0 {
			c.keep(at, wanted)
			return nil
		}
		at += size
		if err := e.settle(index, a, now); err != nil {
			return err
		}
	}
}

func (e *engine) settle(index int, a answer, now int64) error {
	c := e.conns[index]
	at := int((a.opaque - firstOpaque) % int64(e.inFlight))
	if at < 0 || !c.slots[at].busy || c.slots[at].opaque != a.opaque {
		return fmt.Errorf("connection %d: an answer with opaque %d, which is not in flight", index, a.opaque)
	}
	place := &c.slots[at]
	messages, err := e.work.answer(index, at, a)
	if err != nil {
		e.tally.fail(err)
	}
	if e.measuring {
		e.tally.requests++
		e.tally.messages += int64(messages)
		e.tally.latency.add(now - place.sentAt)
	}
	place.busy = false
	place.opaque += int64(e.inFlight)
	e.inTheAir--
	e.issue(index, at, now)
	return nil
}

// keep moves an unfinished answer to the front and makes room for the whole of it.
func (c *connection) keep(from, wanted int) {
	rest := c.in[from:c.filled]
	if wanted > len(c.in) {
		c.in = append(make([]byte, 0, wanted+inputSize), rest...)
		c.in = c.in[:cap(c.in)]
	} else if from > 0 {
		copy(c.in, rest)
	}
	c.filled = len(rest)
}

func (e *engine) flush(index int) error {
	c := e.conns[index]
	for c.sent < len(c.out) {
		n, err := rawWrite(c.fd, c.out[c.sent:])
		if errors.Is(err, syscall.EAGAIN) {
			return e.await(index, true)
		}
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("connection %d: %w", index, err)
		}
		c.sent += max(n, 0)
	}
	c.out, c.sent = c.out[:0], 0
	return e.await(index, false)
}

func (e *engine) await(index int, room bool) error {
	c := e.conns[index]
	if c.waiting == room {
		return nil
	}
	c.waiting = room
	events := uint32(syscall.EPOLLIN)
	if room {
		events |= syscall.EPOLLOUT
	}
	return e.control(syscall.EPOLL_CTL_MOD, index, events)
}

func (t *tally) fail(err error) {
	t.errors++
	if len(t.samples) < maxSamples {
		t.samples = append(t.samples, err.Error())
	}
}

func (e *engine) close() {
	for _, c := range e.conns {
		syscall.Close(c.fd)
	}
	syscall.Close(e.poll)
}
