package main

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

func createdTopics(p *peer, s *steps) {
	for _, counts := range [][2]int{{1, 1}, {5, 5}, {2, 4}, {4, 2}} {
		what := fmt.Sprintf("%d to read, %d to write", counts[0], counts[1])
		s.step(what, func() (any, error) {
			topic := p.createTopic(fmt.Sprintf("created%d%d", counts[0], counts[1]), counts[0], counts[1])
			return p.queues(topic), nil
		})
	}
	s.step("illegal name", func() (any, error) {
		return "created", p.admin.CreateTopic(background, p.topicOptions(p.topic("a b"), 1, 1)...)
	})
	s.step("listed", func() (any, error) { return p.listed("created55") })
	s.step("deleted", func() (any, error) {
		return "deleted", p.admin.DeleteTopic(background, admin.WithTopicDelete(p.topic("created55")),
			admin.WithBrokerAddrDelete(p.brokerAddr), admin.WithNameSrvAddr([]string{p.namesrv}))
	})
	s.step("listed after that", func() (any, error) { return p.listed("created55") })
}

func (p *peer) listed(name string) (any, error) {
	list, err := p.admin.FetchAllTopicList(background)
	if err != nil {
		return nil, err
	}
	return slices.Contains(list.TopicList, p.topic(name)), nil
}

func autoCreatedTopics(p *peer, s *steps) {
	for _, count := range []int{1, 4, 9} {
		topic := p.topic(fmt.Sprint("auto", count))
		s.step(fmt.Sprintf("%d queues wanted", count), func() (any, error) {
			maker := p.newProducer(producer.WithDefaultTopicQueueNums(count))
			result, err := maker.SendSync(background, primitive.NewMessage(topic, text(1)))
			if err != nil {
				return nil, err
			}
			eventually(func() bool { return len(p.queues(topic)) > 0 })
			return fields{"status", result.Status, "queues", p.queues(topic)}, nil
		})
	}
	s.step("from an unknown topic", func() (any, error) {
		maker := p.newProducer(producer.WithCreateTopicKey(p.topic("nokey")))
		return s.sent(maker.SendSync(background, primitive.NewMessage(p.topic("none"), text(1))))
	})
}

func pull(p *peer, s *steps) {
	topic := p.createTopic("pull", 2, 2)
	for i := 0; i < 5; i++ {
		_, err := p.bold.SendSync(background, message(topic, 0, text(i+1)).WithTag(fmt.Sprint("tag", i)))
		check(err)
	}
	p.settle(topic, 0, 5)
	puller := p.newPullConsumer(topic, "*")
	defer puller.Shutdown()
	for _, offset := range []int64{-1, 0, 3, 4, 6, 1000} {
		s.step(fmt.Sprint("offset ", offset), func() (any, error) {
			return s.pulled(puller.PullFrom(background, queue(topic, 0), offset, 32))
		})
	}
	nothingNew(s, puller, topic)
	s.step("two of five", func() (any, error) { return s.pulled(puller.PullFrom(background, queue(topic, 0), 0, 2)) })
	s.step("empty queue, offset 5", func() (any, error) { return s.pulled(puller.PullFrom(background, queue(topic, 1), 5, 2)) })
	s.step("queue 2", func() (any, error) { return s.pulled(puller.PullFrom(background, queue(topic, 2), 0, 2)) })
	s.step("woken by a message", func() (any, error) { return wokenPull(p, s, puller, topic) })
	s.step("offset kept", func() (any, error) {
		if err := puller.UpdateOffset(queue(topic, 0), 3); err != nil {
			return nil, err
		}
		if err := puller.PersistOffset(background, topic); err != nil {
			return nil, err
		}
		return puller.CurrentOffset(queue(topic, 0))
	})
}

// nothingNew pulls where no message is. This client always asks the broker to hold such a pull, for 20 s: both at once.
func nothingNew(s *steps, puller rocketmq.PullConsumer, topic string) {
	end := pullInBackground(puller, queue(topic, 0), 5)
	empty := pullInBackground(puller, queue(topic, 1), 0)
	s.step("offset 5", func() (any, error) { return s.pulled(end()) })
	s.step("empty queue, offset 0", func() (any, error) { return s.pulled(empty()) })
}

// pullInBackground begins a pull; the function it returns waits for the answer.
func pullInBackground(
	puller rocketmq.PullConsumer, queue *primitive.MessageQueue, offset int64,
) func() (*primitive.PullResult, error) {
	var result *primitive.PullResult
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, err = puller.PullFrom(background, queue, offset, 32)
	}()
	return func() (*primitive.PullResult, error) {
		<-done
		return result, err
	}
}

func wokenPull(p *peer, s *steps, puller rocketmq.PullConsumer, topic string) (any, error) {
	go func() {
		time.Sleep(500 * time.Millisecond)
		_, err := p.bold.SendSync(background, message(topic, 0, text(9)).WithTag("late"))
		check(err)
	}()
	return s.pulled(puller.PullFrom(background, queue(topic, 0), 5, 2))
}

func pullTags(p *peer, s *steps) {
	topic := p.createTopic("tags", 1, 1)
	tags := []string{"A", "B", "", "Aa", "BB", "\u6807"}
	for i, tag := range tags {
		made := message(topic, 0, text(i+1))
		if tag != "" {
			made.WithTag(tag)
		}
		_, err := p.bold.SendSync(background, made)
		check(err)
	}
	p.settle(topic, 0, len(tags))
	for _, expression := range []string{"*", "A", "A || B", "Aa", "C", "\u6807"} {
		s.step(expression, func() (any, error) {
			puller := p.newPullConsumer(topic, expression)
			defer puller.Shutdown()
			return s.pulled(puller.PullFrom(background, queue(topic, 0), 0, 32))
		})
	}
}

// push consumes with a listener: heartbeat, rebalance, pulls and commits as most users have them.
func push(p *peer, s *steps) {
	topic := p.createTopic("push", 4, 4)
	for i := 0; i < 20; i++ {
		_, err := p.bold.SendSync(background, message(topic, i%4, text(i+1)).WithTag([]string{"A", "B"}[i%2]))
		check(err)
	}
	s.step("all", func() (any, error) { return p.consume(topic, "*", 20) })
	s.step("one tag", func() (any, error) { return p.consume(topic, "B", 10) })
}

// consume starts a new group at the first message and returns what its listener got, once nothing more is expected.
func (p *peer) consume(topic, expression string, count int) (any, error) {
	name := p.name("pusher")
	made, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(p.resolver()), consumer.WithInstance(name), consumer.WithGroupName(name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithCredentials(credentials))
	if err != nil {
		return nil, err
	}
	var lock sync.Mutex
	got := []string{}
	listener := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		lock.Lock()
		defer lock.Unlock()
		for _, message := range messages {
			got = append(got, brief(message))
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := made.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: expression}, listener); err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	defer made.Shutdown()
	eventually(func() bool {
		lock.Lock()
		defer lock.Unlock()
		return len(got) >= count
	})
	time.Sleep(300 * time.Millisecond) // anything delivered twice would show
	lock.Lock()
	defer lock.Unlock()
	sort.Strings(got)
	return got, nil
}
