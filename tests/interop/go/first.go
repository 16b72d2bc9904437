package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const (
	roundsAtOnce = 10
	lostAfter    = 45 * time.Second // this client looks at its queues every 20 s
)

// firstMessages is FirstMessages.java for this client: namesrvAddr brokerAddr prefix rounds queues messages.
func firstMessages(arguments []string) {
	p := newPeer(arguments[0], arguments[1], arguments[2])
	rounds, queues, messages := number(arguments[3]), number(arguments[4]), number(arguments[5])
	var running sync.WaitGroup
	places := make(chan struct{}, roundsAtOnce)
	for i := range rounds {
		places <- struct{}{}
		running.Add(1)
		go func() {
			defer running.Done()
			if missing := p.firstRound(fmt.Sprint("first", i), queues, messages); len(missing) > 0 {
				fmt.Printf("lost %d: %v\n", i, missing)
			}
			<-places
		}()
	}
	running.Wait()
	fmt.Println("rounds", rounds)
}

func (p *peer) firstRound(name string, queues, messages int) []string {
	topic := p.createTopic(name, queues, queues)
	var lock sync.Mutex
	missing := map[string]bool{}
	for i := range messages {
		missing[fmt.Sprint("k", i)] = true
	}
	made, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(p.resolver()), consumer.WithInstance(p.topic(name)),
		consumer.WithGroupName(p.topic(name)), consumer.WithConsumeFromWhere(consumer.ConsumeFromLastOffset))
	check(err)
	listener := func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		for _, message := range batch {
			delete(missing, message.GetKeys())
		}
		return consumer.ConsumeSuccess, nil
	}
	check(made.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}, listener))
	check(made.Start())
	for i := range messages {
		p.send(topic, i%queues, "", fmt.Sprint("k", i))
	}
	left := func() []string {
		lock.Lock()
		defer lock.Unlock()
		keys := []string{}
		for key := range missing {
			keys = append(keys, key)
		}
		return keys
	}
	for end := time.Now().Add(lostAfter); len(left()) > 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	return left() // the process ends soon: a shutdown takes longer than a round
}
