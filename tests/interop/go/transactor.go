package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// transact does what Transactor.java does.
// Usage: Transactor namesrvAddr group topic phase logFile (NAME:LOCAL:PHASE)...
func transact(arguments []string) {
	log, err := os.OpenFile(arguments[4], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	check(err)
	sender, err := rocketmq.NewTransactionProducer(
		&transactor{phase: arguments[3], log: log},
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{arguments[0]})),
		producer.WithGroupName(arguments[1]),
		producer.WithSendMsgTimeout(10*time.Second),
	)
	check(err)
	check(sender.Start())
	for _, wish := range arguments[5:] {
		message := primitive.NewMessage(arguments[2], []byte(wish)).WithTag("tag").WithKeys([]string{wish})
		_, err := sender.SendMessageInTransaction(context.Background(), message)
		check(err)
	}
	fmt.Println("all sent")
	select {}
}

type transactor struct {
	phase string
	log   *os.File
	lock  sync.Mutex
}

func (t *transactor) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	words := strings.Split(string(message.Body), ":")
	t.note("executed " + words[0])
	switch words[1] {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	case "slow":
		time.Sleep(4 * time.Second)
		return primitive.CommitMessageState
	case "hang":
		select {}
	}
	return primitive.UnknowState
}

func (t *transactor) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	words := strings.Split(string(message.Body), ":")
	t.note("checked " + words[0])
	switch words[2] {
	case t.phase:
		return primitive.CommitMessageState
	case "!" + t.phase:
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (t *transactor) note(line string) {
	t.lock.Lock()
	defer t.lock.Unlock()
	_, err := t.log.WriteString(line + "\n")
	check(err)
}
