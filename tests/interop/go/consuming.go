package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// The broker of these scenarios is started with these levels; the first is level 1.
var levelSeconds = []int{0, 1, 2, 2, 4, 6, 8}

var consumerScenarios = []scenario{
	{"concurrent", concurrent},
	{"concurrent, by tag", byTag},
	{"ordered", ordered},
	{"ordered, suspended", suspended},
	{"broadcast", broadcast},
	{"retry to dead letters", retryToDeadLetters},
	{"retry, other ways to fail", otherWaysToFail},
	{"delay levels", delayLevels},
	{"reset while consuming", resetWhileConsuming},
	{"reset of a stopped group", resetStopped},
	{"first offset, whole topic", firstOffsetWhole},
	{"first offset, empty topic", firstOffsetEmpty},
	{"first offset, beginning gone", firstOffsetOld},
	{"joining and leaving", joining},
}

func concurrent(p *peer, s *steps) {
	topic := p.createTopic("concurrent", 4, 4)
	p.fill(topic, 4, "early", 40)
	m := p.member(s, "concurrent", "one", topic, "*", success)
	s.step("delivered", func() (any, error) { return m.awaited(40), nil })
	s.step("as the listener saw it", func() (any, error) { return m.of("early0")[0].view, nil })
	p.fill(topic, 4, "late", 8)
	s.step("delivered later", func() (any, error) { return len(m.awaited(48)), nil })
	m.stop()
	s.step("committed", func() (any, error) { return p.committed("concurrent", topic, 12, 12, 12, 12), nil })
	p.fill(topic, 2, "absent", 4)
	again := p.member(s, "concurrent", "two", topic, "*", success)
	s.step("delivered to the next one", func() (any, error) { return again.awaited(4), nil })
	again.stop()
}

func byTag(p *peer, s *steps) {
	topic := p.createTopic("bytag", 1, 1)
	for i, tag := range []string{"A", "B", "C", "", "Aa", "BB", "A"} {
		p.send(topic, 0, tag, fmt.Sprint("k", i))
	}
	expressions := []string{"A", "A || B", "Aa", "Z"}
	counts := []int{2, 3, 1, 0}
	members := []*member{}
	for i, expression := range expressions {
		members = append(members, p.member(s, fmt.Sprint("bytag", i), "one", topic, expression, success))
	}
	for i, m := range members {
		s.step(expressions[i], func() (any, error) { return m.awaited(counts[i]), nil })
		if expressions[i] != "Aa" { // this client stays behind what it filters out itself
			s.step(expressions[i]+", committed", func() (any, error) { return p.committed(fmt.Sprint("bytag", i), topic, 7), nil })
		}
		m.stop()
	}
}

func ordered(p *peer, s *steps) {
	topic := p.createTopic("ordered", 4, 4)
	p.fill(topic, 4, "m", 40)
	m := p.member(s, "ordered", "one", topic, "*", success, consumer.WithConsumerOrder(true))
	s.step("delivered", func() (any, error) {
		m.awaited(40)
		return m.keysByQueue(), nil
	})
	m.stop()
	s.step("committed", func() (any, error) { return p.committed("ordered", topic, 10, 10, 10, 10), nil })
}

func suspended(p *peer, s *steps) {
	topic := p.createTopic("suspended", 2, 2)
	p.fill(topic, 2, "m", 10)
	m := p.member(s, "suspended", "one", topic, "*", func(_ context.Context, d delivery) (consumer.ConsumeResult, error) {
		if d.key == "m4" && d.times < 3 {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		return consumer.ConsumeSuccess, nil
	}, consumer.WithConsumerOrder(true), consumer.WithSuspendCurrentQueueTimeMillis(300*time.Millisecond))
	s.step("delivered", func() (any, error) {
		m.awaited(13)
		return m.keysByQueue(), nil
	})
	s.step("counts", func() (any, error) { return times(m.of("m4")), nil })
	m.stop()
	s.step("committed", func() (any, error) { return p.committed("suspended", topic, 5, 5), nil })
}

func broadcast(p *peer, s *steps) {
	topic := p.createTopic("broadcast", 2, 2)
	p.fill(topic, 2, "m", 10)
	one := p.member(s, "broadcast", "one", topic, "*", success, consumer.WithConsumerModel(consumer.BroadCasting))
	two := p.member(s, "broadcast", "two", topic, "*", success, consumer.WithConsumerModel(consumer.BroadCasting))
	s.step("one", func() (any, error) { return one.awaited(10), nil })
	s.step("two", func() (any, error) { return two.awaited(10), nil })
	p.fill(topic, 2, "late", 2)
	s.step("one, later", func() (any, error) { return len(one.awaited(12)), nil })
	s.step("two, later", func() (any, error) { return len(two.awaited(12)), nil })
	one.stop()
	two.stop()
	s.step("kept by the broker", func() (any, error) { return p.committed("broadcast", topic, 0, 0), nil })
}

func retryToDeadLetters(p *peer, s *steps) {
	topic := p.createTopic("retry", 2, 2)
	p.createRetryTopic("retry")
	p.send(topic, 0, "", "good")
	p.send(topic, 1, "tag", "bad")
	m := p.member(s, "retry", "one", topic, "*", func(_ context.Context, d delivery) (consumer.ConsumeResult, error) {
		if d.key == "bad" {
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	}, consumer.WithMaxReconsumeTimes(3))
	s.step("delivered", func() (any, error) {
		long(func() bool { return len(m.of("bad")) >= 4 })
		found := times(m.got())
		sort.Strings(found)
		return found, nil
	})
	s.step("delays", func() (any, error) {
		delays := []string{}
		bad := m.of("bad")
		for i := 1; i < len(bad); i++ {
			delays = append(delays, lateness(levelSeconds[2+i], bad[i-1].at, bad[i]))
		}
		return delays, nil
	})
	for i := 0; i < 4; i++ {
		s.step(fmt.Sprint("time ", i), func() (any, error) { return without(m.of("bad")[i].view, "offset"), nil })
	}
	s.step("dead letter", func() (any, error) { return p.deadLetter(s, "retry", "bad"), nil })
	s.step("no more deliveries", func() (any, error) {
		time.Sleep(quiet)
		return len(m.of("bad")), nil
	})
	s.step("topic of the dead letters", func() (any, error) { return p.route(p.deadLetters("retry")), nil })
	s.step("committed", func() (any, error) { return p.committed("retry", topic, 1, 1), nil })
	s.step("committed of the retries", func() (any, error) { return p.committed("retry", p.retryTopic("retry"), 3), nil })
	m.stop()
}

func otherWaysToFail(p *peer, s *steps) {
	topic := p.createTopic("ways", 1, 1)
	p.createRetryTopic("ways")
	levels := map[string]int{"level 1": 1, "straight to dead letters": -1}
	ways := []string{"error", "level 1", "straight to dead letters"}
	for _, way := range ways {
		p.send(topic, 0, "", way)
	}
	m := p.member(s, "ways", "one", topic, "*", func(ctx context.Context, d delivery) (consumer.ConsumeResult, error) {
		if d.times > 0 {
			return consumer.ConsumeSuccess, nil
		}
		if d.key == "error" {
			return consumer.ConsumeRetryLater, errors.New("as wanted")
		}
		found, _ := primitive.GetConcurrentlyCtx(ctx)
		found.DelayLevelWhenNextConsume = levels[d.key]
		return consumer.ConsumeRetryLater, nil
	})
	s.step("delivered", func() (any, error) {
		long(func() bool { return len(m.got()) >= 5 })
		time.Sleep(quiet)
		found := times(m.got())
		sort.Strings(found)
		return found, nil
	})
	for i, way := range ways[:2] {
		s.step(way, func() (any, error) { return without(m.of(way)[1].view, "offset"), nil })
		s.step(way+", delay", func() (any, error) {
			return lateness(levelSeconds[3-2*i], m.of(way)[0].at, m.of(way)[1]), nil
		})
	}
	s.step("dead letter", func() (any, error) { return p.deadLetter(s, "ways", ways[2]), nil })
	m.stop()
}

// lateness: stored for its readers never early, and not very late.
func lateness(seconds int, from time.Time, d delivery) string {
	took := d.stored.Sub(from)
	late := took - time.Duration(seconds)*time.Second
	if late < -time.Millisecond { // the broker's clock has whole milliseconds
		return fmt.Sprint(took, ", early")
	}
	if late > 3*time.Second {
		return fmt.Sprint(took, ", late")
	}
	return fmt.Sprintf("after %d s", seconds)
}

func delayLevels(p *peer, s *steps) {
	topic := p.createTopic("delay", 2, 2)
	m := p.member(s, "delay", "one", topic, "*", success)
	sent := map[int]time.Time{}
	levels := []int{0, 1, 2, 3, 4, 5, 6, 99}
	for _, level := range levels {
		key := fmt.Sprint("level ", level)
		made := message(topic, 1, []byte(key)).WithKeys([]string{key}).WithDelayTimeLevel(level)
		sent[level] = time.Now()
		s.step("sent with level "+fmt.Sprint(level), func() (any, error) {
			result, err := p.bold.SendSync(background, made)
			if err != nil {
				return nil, err
			}
			return result.Status, nil
		})
	}
	long(func() bool { return len(m.got()) >= len(levels) })
	for _, level := range levels {
		s.step(fmt.Sprint("level ", level), func() (any, error) {
			return lateness(levelSeconds[min(level, 6)], sent[level], m.of(fmt.Sprint("level ", level))[0]), nil
		})
	}
	s.step("level 1, as the listener saw it", func() (any, error) { return m.of("level 1")[0].view, nil })
	m.stop()
	s.step("committed", func() (any, error) { return p.committed("delay", topic, 0, 8), nil })
}

// filledInHalves sends ten messages, pauses, and sends ten more.
func (p *peer) filledInHalves(name string) (topic string, middle int64) {
	topic = p.createTopic(name, 2, 2)
	p.fill(topic, 2, "early", 10)
	time.Sleep(600 * time.Millisecond) // 4.9.7 goes to the nearest message
	middle = time.Now().UnixMilli()
	time.Sleep(200 * time.Millisecond)
	p.fill(topic, 2, "late", 10)
	return topic, middle
}

var queueOffset = regexp.MustCompile(`"queueId":(\d+),"topic":"[^"]*"\}:(\d+)`)

func (p *peer) reset(s *steps, topic, group string, moment int64) (any, error) {
	found, err := raw(p.brokerAddr, 222, nil, "topic", topic, "group", p.topic(group), "timestamp", moment, "isForce", true)
	if err != nil {
		return nil, err
	}
	offsets := map[string]string{}
	for _, match := range queueOffset.FindAllSubmatch(found.body, -1) {
		offsets["queue "+string(match[1])] = string(match[2])
	}
	return fields{"code", found.Code, "offsets", offsets}, nil
}

func resetWhileConsuming(p *peer, s *steps) {
	topic, middle := p.filledInHalves("reset")
	m := p.member(s, "reset", "one", topic, "*", success)
	s.step("delivered", func() (any, error) { return len(m.awaited(20)), nil })
	s.step("committed", func() (any, error) { return p.committed("reset", topic, 10, 10), nil })
	s.step("back to the middle", func() (any, error) { return p.reset(s, topic, "reset", middle) })
	s.step("delivered again", func() (any, error) {
		return places(m.settled(30)[20:]), nil
	})
	p.send(topic, 0, "", "after")
	s.step("delivered after that", func() (any, error) {
		long(func() bool { return len(m.of("after")) > 0 })
		time.Sleep(quiet)
		return len(m.got()), nil
	})
	s.step("committed in the end", func() (any, error) { return p.committed("reset", topic, 11, 10), nil })
	m.stop()
}

func resetStopped(p *peer, s *steps) {
	topic, middle := p.filledInHalves("resetstopped")
	m := p.member(s, "resetback", "one", topic, "*", success)
	m.awaited(20)
	m.stop()
	p.committed("resetback", topic, 10, 10)
	s.step("back to the middle", func() (any, error) { return p.reset(s, topic, "resetback", middle) })
	again := p.member(s, "resetback", "two", topic, "*", success)
	s.step("delivered again", func() (any, error) { return places(again.settled(10)), nil })
	again.stop()
}

func firstOffsetWhole(p *peer, s *steps) {
	topic := p.createTopic("whole", 1, 1)
	p.fill(topic, 1, "early", 3)
	time.Sleep(1300 * time.Millisecond)
	middle := time.Now()
	time.Sleep(1300 * time.Millisecond)
	p.fill(topic, 1, "late", 3)
	p.firstOffsets(s, "whole", topic, middle)
}

func firstOffsetEmpty(p *peer, s *steps) {
	p.firstOffsets(s, "empty", p.createTopic("empty", 1, 1), time.Now().Add(-time.Minute))
}

// firstOffsetOld uses a topic that was made before this program began.
func firstOffsetOld(p *peer, s *steps) {
	topic := p.topic("old")
	puller := p.newPullConsumer(topic, "*")
	defer puller.Shutdown()
	result, err := puller.PullFrom(background, queue(topic, 0), 25, 1)
	check(err)
	s.step("bounds", func() (any, error) { return fmt.Sprintf("%d to %d", result.MinOffset, result.MaxOffset), nil })
	p.firstOffsets(s, "old", topic, time.UnixMilli(result.GetMessageExts()[0].StoreTimestamp).Add(-time.Second))
}

func (p *peer) firstOffsets(s *steps, name, topic string, moment time.Time) {
	wheres := []consumer.ConsumeFromWhere{
		consumer.ConsumeFromFirstOffset, consumer.ConsumeFromLastOffset, consumer.ConsumeFromTimestamp,
	}
	names := []string{"first offset", "last offset", "timestamp"}
	members := []*member{}
	for i, where := range wheres {
		members = append(members, p.member(s, fmt.Sprint(name, i), "one", topic, "*", success,
			consumer.WithConsumeFromWhere(where), consumer.WithConsumeTimestamp(moment.Format("20060102150405"))))
	}
	time.Sleep(5 * time.Second) // this client does not tell when it has its queues
	p.send(topic, 0, "", "after")
	for i, m := range members {
		s.step(names[i], func() (any, error) {
			long(func() bool { return len(m.of("after")) > 0 })
			time.Sleep(quiet)
			return places(m.got()), nil
		})
		m.stop()
	}
}

// joining: members of one group come and go while messages flow.
func joining(p *peer, s *steps) {
	const queues = 8
	topic := p.createTopic("joining", queues, queues)
	p.createRetryTopic("joining")
	flow := p.flow(topic, queues)
	members := []*member{}
	join := func(count int) {
		for i := 0; i < count; i++ {
			members = append(members, p.member(s, "joining", fmt.Sprint("m", len(members)), topic, "*", success))
		}
	}
	join(1)
	s.step("one", func() (any, error) { return shares(queues, members), nil })
	join(1)
	s.step("two", func() (any, error) { return shares(queues, members), nil })
	join(3)
	s.step("five", func() (any, error) { return shares(queues, members), nil })
	members[1].stop()
	members[4].stop()
	s.step("two leave", func() (any, error) {
		return shares(queues, []*member{members[0], members[2], members[3]}), nil
	})
	members[2].stop()
	members[3].stop()
	s.step("two more leave", func() (any, error) { return shares(queues, members[:1]), nil })
	sent := flow()
	s.step("all consumed", func() (any, error) {
		return long(func() bool { return consumedBy(members) == sent }), nil
	})
	members[0].stop()
}

// shares: which member has which queues, judged by what came in the last moments, once that is even.
func shares(queues int, members []*member) any {
	begun := time.Now()
	found := map[string]any{}
	long(func() bool {
		all := []int{}
		least, most := queues, 0
		for i, m := range members {
			mine := []int{}
			for _, one := range m.got() {
				if time.Since(one.at) < 1500*time.Millisecond && !slices.Contains(mine, one.queue) {
					mine = append(mine, one.queue)
				}
			}
			slices.Sort(mine)
			found[fmt.Sprint("member ", i)] = mine
			all = append(all, mine...)
			least, most = min(least, len(mine)), max(most, len(mine))
		}
		slices.Sort(all)
		return len(all) == queues && len(slices.Compact(all)) == queues && most-least <= 1
	})
	found["soon"] = time.Since(begun) < 15*time.Second // the client looks by itself every 20 s: this is for being told
	return found
}

func consumedBy(members []*member) int {
	keys := map[string]bool{}
	for _, m := range members {
		for _, one := range m.got() {
			keys[one.key] = true
		}
	}
	return len(keys)
}

// flow sends to all queues in turn until the returned function is called, which tells how many.
func (p *peer) flow(topic string, queues int) func() int {
	stop := make(chan struct{})
	sent := 0
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		for {
			select {
			case <-stop:
				return
			case <-time.After(40 * time.Millisecond):
				p.send(topic, sent%queues, "", fmt.Sprint("m", sent))
				sent++
			}
		}
	}()
	return func() int {
		close(stop)
		running.Wait()
		return sent
	}
}
