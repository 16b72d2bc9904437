package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var sizes = []int{0, 1, 4095, 4096, 4*mib - 1, 4 * mib, 4*mib + 1}

func sendSync(p *peer, s *steps) {
	topic := p.createTopic("sync", 1, 1)
	for _, size := range sizes {
		s.step(fmt.Sprintf("%d bytes", size), func() (any, error) {
			return s.sent(p.bold.SendSync(background, message(topic, 0, noise(size))))
		})
	}
	s.step("compressed", func() (any, error) {
		return s.sent(p.producer.SendSync(background, message(topic, 0, text(10_000))))
	})
	s.step("flag", func() (any, error) {
		made := message(topic, 0, text(10))
		made.Flag = 12345
		return s.sent(p.bold.SendSync(background, made))
	})
	s.step("queue 1 of one", func() (any, error) {
		return s.sent(p.bold.SendSync(background, message(topic, 1, text(1))))
	})
	s.stored(p, topic, s.accepted)
}

func sendAsync(p *peer, s *steps) {
	topic := p.createTopic("async", 1, 1)
	for _, size := range sizes {
		s.step(fmt.Sprintf("%d bytes", size), func() (any, error) {
			return s.sent(awaitAsync(p, message(topic, 0, noise(size))))
		})
	}
	s.stored(p, topic, s.accepted)
}

func awaitAsync(p *peer, message *primitive.Message) (*primitive.SendResult, error) {
	type outcome struct {
		result *primitive.SendResult
		err    error
	}
	done := make(chan outcome, 2)
	err := p.bold.SendAsync(background, func(_ context.Context, result *primitive.SendResult, err error) {
		done <- outcome{result, err}
	}, message)
	if err != nil {
		return nil, err
	}
	select {
	case came := <-done:
		return came.result, came.err
	case <-time.After(patient):
		return nil, errors.New("no answer")
	}
}

func sendOneway(p *peer, s *steps) {
	topic := p.createTopic("oneway", 1, 1)
	_, refused := p.bold.SendSync(background, message(p.createTopic("empty", 1, 1), 0, nil)) // 4.9.7 takes it
	stored := 0
	for _, size := range sizes {
		s.step(fmt.Sprintf("%d bytes", size), func() (any, error) {
			return "returned", p.bold.SendOneWay(background, message(topic, 0, noise(size)))
		})
		if size <= 4*mib && (size > 0 || refused == nil) {
			stored++
			p.settle(topic, 0, stored) // one at a time: a pool of threads would store them in any order
		}
	}
	s.stored(p, topic, stored)
}

func sendBySelector(p *peer, s *steps) {
	topic := p.createTopic("selector", 4, 4)
	hashing := p.newProducer(
		producer.WithQueueSelector(producer.NewHashQueueSelector()),
		producer.WithCompressMsgBodyOverHowmuch(64*mib))
	for _, key := range []string{"a", "b", "c"} {
		s.step("sharding key "+key, func() (any, error) {
			return s.sent(hashing.SendSync(background, primitive.NewMessage(topic, text(1)).WithShardingKey(key)))
		})
	}
	for _, size := range sizes {
		s.step(fmt.Sprintf("%d bytes by key c", size), func() (any, error) {
			return s.sent(hashing.SendSync(background, primitive.NewMessage(topic, noise(size)).WithShardingKey("c")))
		})
	}
	s.step("eight in turn", func() (any, error) {
		counts := map[string]int{}
		turning := p.newProducer(producer.WithQueueSelector(producer.NewRoundRobinQueueSelector()))
		for i := 0; i < 8; i++ {
			result, err := turning.SendSync(background, primitive.NewMessage(topic, text(1)))
			if err != nil {
				return nil, err
			}
			counts[fmt.Sprint(result.MessageQueue.QueueId)]++
		}
		return counts, nil
	})
}

func sendBatch(p *peer, s *steps) {
	topic := p.createTopic("batch", 1, 1)
	for _, size := range sizes {
		s.step(fmt.Sprintf("one byte and %d bytes", size), func() (any, error) {
			return s.sent(p.bold.SendSync(background, message(topic, 0, text(1)), message(topic, 0, noise(size))))
		})
	}
	s.step("three", func() (any, error) {
		messages := []*primitive.Message{}
		for i := 0; i < 3; i++ {
			made := message(topic, 0, text(100+i)).WithTag(fmt.Sprint("tag", i)).WithKeys([]string{fmt.Sprint("key", i), "all"})
			made.WithProperty("index", fmt.Sprint(i))
			messages = append(messages, made)
		}
		return s.sent(p.bold.SendSync(background, messages...))
	})
	s.step("two topics", func() (any, error) {
		return s.sent(p.bold.SendSync(background, message(topic, 0, text(1)), message(topic+"x", 0, text(1))))
	})
	s.step("none", func() (any, error) {
		return s.sent(p.bold.SendSync(background))
	})
	s.stored(p, topic, 11)
}

func sendUnicode(p *peer, s *steps) {
	topic := p.createTopic("unicode", 1, 1)
	words := "\u4e2d\u6587 \u00e9 \U0001f600"
	s.step("send", func() (any, error) {
		made := message(topic, 0, []byte(words)).WithTag("\u6807\u7b7e").WithKeys([]string{"\u952e1", "k\u00e9y2"})
		made.WithProperty("\u540d", words)
		made.WithProperty("quote", "\"\\/{}[],:'<>&")
		return s.sent(p.bold.SendSync(background, made))
	})
	s.stored(p, topic, 1)
}

func illegalTopics(p *peer, s *steps) {
	names := []string{
		p.topic("a b"), p.topic("a/b"), p.topic("\u4e2d"), "", p.topic(strings.Repeat("t", 127-len(p.prefix))),
		p.topic(strings.Repeat("t", 128-len(p.prefix))), "SELF_TEST_TOPIC", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC",
	}
	for _, topic := range names {
		what := s.answers.clean(topic)
		if len(what) > 100 {
			what = fmt.Sprint(len(topic), " letters")
		}
		s.step("send "+what, func() (any, error) {
			result, err := p.producer.SendSync(background, primitive.NewMessage(topic, text(1)))
			if err != nil {
				return nil, err
			}
			return result.Status, nil
		})
	}
}

func propertyBytes(p *peer, s *steps) {
	topic := p.createTopic("properties", 1, 1)
	for _, length := range []int{32000, 32767, 32768, 70000} {
		s.step(fmt.Sprint(length), func() (any, error) {
			made := message(topic, 0, text(1))
			made.WithProperty("p", strings.Repeat("x", length))
			return s.sent(p.bold.SendSync(background, made))
		})
	}
}

// stored pulls queue 0 of a topic, whole, when it has that many messages.
func (s *steps) stored(p *peer, topic string, count int) {
	p.settle(topic, 0, count)
	s.step("stored", func() (any, error) {
		puller := p.newPullConsumer(topic, "*")
		defer puller.Shutdown()
		views := []fields{}
		for offset, end := int64(0), int64(1); offset < end; {
			result, err := puller.PullFrom(background, queue(topic, 0), offset, 32)
			if err != nil {
				return nil, err
			}
			for _, found := range result.GetMessageExts() {
				views = append(views, s.message(found))
			}
			offset, end = result.NextBeginOffset, result.MaxOffset
		}
		return views, nil
	})
}
