// Command loadgen puts a measured load on a RocketMQ broker and prints what it saw as one JSON object.
//
//	loadgen send  -address 127.0.0.1:10911 -connections 4 -in-flight 64 -size 1024 -pid 4711
//	loadgen pull  -address 127.0.0.1:10911 -connections 4 -in-flight 1 -batch 32
//	loadgen first -namesrv 127.0.0.1:9876 -address 127.0.0.1:10911
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

type options struct {
	settings
	namesrv string
	topic   string
	topics  int
	queues  int
	size    int
	batch   int
	keys    bool
	delay   int
	broker  string
	timeout time.Duration
}

type report struct {
	Mode        string   `json:"mode"`
	Connections int      `json:"connections"`
	InFlight    int      `json:"in_flight"`
	Size        int      `json:"size,omitempty"`
	Batch       int      `json:"batch,omitempty"`
	Topics      int      `json:"topics"`
	Seconds     float64  `json:"seconds"`
	Requests    int64    `json:"requests"`
	Messages    int64    `json:"messages"`
	Errors      int64    `json:"errors"`
	Samples     []string `json:"error_samples,omitempty"`
	Rate        float64  `json:"messages_per_second"`
	MegabytesIn float64  `json:"megabytes_received_per_second"`
	Latency     latency  `json:"latency"`
	Server      *server  `json:"server,omitempty"`
	Machine     machine  `json:"machine"`
}

type latency struct {
	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	Max  float64 `json:"max_us"`
	Note string  `json:"note"`
}

type server struct {
	CPUSeconds    float64 `json:"cpu_seconds"`
	CPUPerMessage float64 `json:"cpu_us_per_message"`
	PerCPUSecond  float64 `json:"messages_per_cpu_second"`
	Cores         float64 `json:"cores"`
	Evictions     float64 `json:"evictions_per_1000_messages"`
	Memory        memory  `json:"memory"`
	MemoryBefore  memory  `json:"memory_before"`
}

// machine shows how far to trust the rest: the use of the cores by other processes and by the generator.
type machine struct {
	LoadAverage    float64 `json:"load_average"`
	GeneratorCores float64 `json:"generator_cores"`
	OtherCores     float64 `json:"other_cores"`
	StolenCores    float64 `json:"stolen_cores"`
}

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: loadgen send|pull|first [flags]"))
	}
	result, err := run(os.Args[1], os.Args[2:])
	if err != nil {
		fail(err)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	if err := out.Encode(result); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "loadgen:", err)
	os.Exit(1)
}

func run(mode string, arguments []string) (any, error) {
	o, err := parseOptions(mode, arguments)
	if err != nil {
		return nil, err
	}
	switch mode {
	case "first":
		attempts, err := firstAck(o.namesrv, o.address, sendTo(o).frame, o.timeout)
		return map[string]int64{"acknowledged_unix_ns": time.Now().UnixNano(), "attempts": int64(attempts)}, err
	case "send":
		return load(mode, o, newSends(sendTo(o), o.settings, o.topics, o.queues))
	case "pull":
		template := newPullTemplate(o.topic, o.broker, o.batch)
		return load(mode, o, newPulls(template, o.settings, o.topics, o.queues))
	}
	return nil, fmt.Errorf("unknown mode %q", mode)
}

func sendTo(o options) *sendTemplate {
	return newSendTemplate(o.topic, o.broker, payload(o.size), o.keys, o.delay)
}

func parseOptions(mode string, arguments []string) (options, error) {
	o := options{}
	flags := flag.NewFlagSet(mode, flag.ContinueOnError)
	flags.StringVar(&o.address, "address", "127.0.0.1:10911", "broker")
	flags.StringVar(&o.namesrv, "namesrv", "127.0.0.1:9876", "name server (first)")
	flags.IntVar(&o.connections, "connections", 4, "connections")
	flags.IntVar(&o.inFlight, "in-flight", 1, "requests in flight on each connection")
	flags.IntVar(&o.size, "size", 1024, "message body in bytes (send)")
	flags.IntVar(&o.batch, "batch", 32, "messages asked for by a pull")
	flags.BoolVar(&o.keys, "keys", false, "give every message a key of its own (send)")
	flags.IntVar(&o.delay, "delay-level", 0, "delay level of the messages (send)")
	flags.StringVar(&o.topic, "topic", "bench_", "prefix of the topic names; five digits follow")
	flags.IntVar(&o.topics, "topics", 1, "topics, used in turn")
	flags.IntVar(&o.queues, "queues", 4, "queues of a topic, used in turn")
	flags.StringVar(&o.broker, "broker-name", "broker-a", "broker name in the requests")
	flags.DurationVar(&o.warmup, "warmup", time.Second, "load before the measured window")
	flags.DurationVar(&o.duration, "duration", 5*time.Second, "the measured window")
	flags.Int64Var(&o.count, "count", 0, "number of requests, measured from the first one, instead of a window")
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "how long to try (first)")
	pids := flags.String("pid", "", "server processes whose CPU time and memory to read, by commas")
	if err := flags.Parse(arguments); err != nil {
		return o, err
	}
	for _, text := range strings.FieldsFunc(*pids, func(r rune) bool { return r == ',' }) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return o, err
		}
		o.pids = append(o.pids, pid)
	}
	if o.topics < 1 || o.topics > maxTopics || o.queues < 1 || o.queues > maxQueues {
		return o, fmt.Errorf("topics 1..%d, queues 1..%d", maxTopics, maxQueues)
	}
	if o.connections < 1 || o.inFlight < 1 {
		return o, fmt.Errorf("at least one connection and one request in flight")
	}
	return o, nil
}

func load(mode string, o options, work workload) (*report, error) {
	debug.SetGCPercent(400)
	runtime.LockOSThread()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	go func() { <-signals; interrupted.Store(true) }()

	before, err := readMemory(o.pids)
	if err != nil {
		return nil, err
	}
	e := &engine{settings: o.settings, work: work}
	begin, end, err := e.run()
	if err != nil {
		return nil, fmt.Errorf("%w (%d errors %v)", err, e.tally.errors, e.tally.samples)
	}
	r := summary(mode, o, &e.tally, begin, end)
	if len(o.pids) > 0 {
		r.Server.MemoryBefore = before
		r.Server.Memory, err = readMemory(o.pids)
	}
	return r, err
}

func summary(mode string, o options, t *tally, begin, end usage) *report {
	seconds := end.at.Sub(begin.at).Seconds()
	r := &report{
		Mode: mode, Connections: o.connections, InFlight: o.inFlight, Topics: o.topics, Seconds: seconds,
		Requests: t.requests, Messages: t.messages, Errors: t.errors, Samples: t.samples,
		Rate: float64(t.messages) / seconds, MegabytesIn: float64(t.bytesIn) / 1e6 / seconds,
		Latency: latency{
			P50: t.latency.quantile(0.5), P99: t.latency.quantile(0.99), P999: t.latency.quantile(0.999),
			Max: float64(t.latency.max) / 1000, Note: "tails are unreliable on a shared machine",
		},
		Machine: machine{
			LoadAverage:    loadAverage(),
			GeneratorCores: (end.self - begin.self) / seconds,
			StolenCores:    (end.steal - begin.steal) / seconds,
			OtherCores:     (end.machine - begin.machine - (end.server - begin.server) - (end.self - begin.self)) / seconds,
		},
	}
	if mode == "send" {
		r.Size = o.size
	} else {
		r.Batch = o.batch
	}
	if cpu := end.server - begin.server; len(o.pids) > 0 {
		r.Server = &server{CPUSeconds: cpu, Cores: cpu / seconds}
		if t.messages > 0 && cpu > 0 {
			r.Server.CPUPerMessage = cpu * 1e6 / float64(t.messages)
			r.Server.PerCPUSecond = float64(t.messages) / cpu
			r.Server.Evictions = float64(end.evicted-begin.evicted) * 1000 / float64(t.messages)
		}
	}
	return r
}
