package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// work sends and consumes until it is told to end, or killed, as Worker.java does; workers.py reads what it wrote.
// Usage: Worker namesrvAddr directory (produce:NAME:TOPIC:KEYS:INTERVAL_MS:MODE | consume:NAME:GROUP:TOPIC:MODE)...
func work(arguments []string) {
	w := &worker{resolver: primitive.NewPassthroughResolver([]string{arguments[0]}), directory: arguments[1]}
	for _, job := range arguments[2:] {
		words := strings.Split(job, ":")
		if words[0] == "produce" {
			w.produce(words[1], words[2], number(words[3]), time.Duration(number(words[4]))*time.Millisecond, words[5])
		} else {
			w.consume(words[1], words[2], words[3], words[4] == "ordered")
		}
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	fmt.Println("working")
	<-told
	w.ending.Store(true)
	for _, end := range w.closing {
		_ = end()
	}
}

const again = 100 * time.Millisecond

type worker struct {
	resolver  primitive.NsResolver
	directory string
	closing   []func() error
	ending    atomic.Bool
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

// byNumber sends a message to the queue that its number names.
type byNumber struct{}

func (byNumber) Select(message *primitive.Message, queues []*primitive.MessageQueue, _ string) *primitive.MessageQueue {
	return queues[number(message.GetShardingKey())%len(queues)]
}

func (w *worker) produce(name, topic string, keys int, interval time.Duration, mode string) {
	options := []producer.Option{
		producer.WithNsResolver(w.resolver), producer.WithInstanceName(name), producer.WithGroupName(name), producer.WithRetry(2),
	}
	if mode == "keyed" || mode == "strict" {
		options = append(options, producer.WithQueueSelector(byNumber{}), producer.WithRetry(0))
	}
	made, err := rocketmq.NewProducer(options...)
	check(err)
	check(made.Start())
	w.closing = append(w.closing, made.Shutdown)
	log := w.log(name)
	go func() {
		sequence := int64(0)
		for i := 0; !w.ending.Load(); i++ {
			sequence = max(sequence+1, time.Now().UnixMicro()) // larger than any before, over restarts too
			w.send(made, log, topic, fmt.Sprintf("%s-%d", name, i%keys), sequence, i%keys, mode)
			time.Sleep(interval)
		}
	}()
}

func (w *worker) send(made rocketmq.Producer, log *lines, topic, key string, sequence int64, which int, mode string) {
	for !w.ending.Load() {
		message := primitive.NewMessage(topic, []byte(fmt.Sprint(key, " ", sequence)))
		message.WithKeys([]string{key}).WithShardingKey(fmt.Sprint(which))
		var err error
		switch mode {
		case "oneway":
			if err = made.SendOneWay(background, message); err == nil {
				log.line("sent", key, sequence)
			}
		case "async":
			err = made.SendAsync(background, func(_ context.Context, result *primitive.SendResult, err error) {
				log.outcome(key, sequence, result, err)
			}, message)
		default:
			var result *primitive.SendResult
			result, err = made.SendSync(background, message)
			err = log.outcome(key, sequence, result, err)
		}
		if err == nil || mode != "keyed" {
			return
		}
		time.Sleep(again)
	}
}

func (w *worker) consume(name, group, topic string, ordered bool) {
	made, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(w.resolver), consumer.WithInstance(name), consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumerOrder(ordered),
		consumer.WithConsumeMessageBatchMaxSize(1))
	check(err)
	log := w.log(name)
	listener := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			words := strings.Split(string(message.Body), " ")
			log.line("got", words[0], words[1], message.Queue.BrokerName, message.Queue.QueueId, message.QueueOffset,
				message.ReconsumeTimes)
		}
		return consumer.ConsumeSuccess, nil
	}
	check(made.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}, listener))
	check(made.Start())
	w.closing = append(w.closing, made.Shutdown)
}

// lines is a file of lines. Each is one write, so that a kill leaves whole lines, and leaves all that were written.
type lines struct {
	lock sync.Mutex
	file *os.File
}

func (w *worker) log(name string) *lines {
	file, err := os.OpenFile(filepath.Join(w.directory, name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	check(err)
	return &lines{file: file}
}

func (l *lines) line(verb string, words ...any) {
	line := fmt.Sprintf("%s\t%d", verb, time.Now().UnixMicro())
	for _, word := range words {
		line += fmt.Sprint("\t", word)
	}
	l.lock.Lock()
	defer l.lock.Unlock()
	_, err := l.file.WriteString(line + "\n")
	check(err)
}

func (l *lines) outcome(key string, sequence int64, result *primitive.SendResult, err error) error {
	if err == nil && result.Status != primitive.SendOK {
		err = errors.New("not stored")
	}
	if err != nil {
		l.line("failed", key, sequence, strings.ReplaceAll(fmt.Sprintf("%T", err), "\t", " "))
		return err
	}
	l.line("acknowledged", key, sequence, result.MessageQueue.BrokerName, result.MessageQueue.QueueId, result.QueueOffset)
	return nil
}
