// Runs every scenario in one process, against one name server, and writes what the Go client saw.
// Usage: scenarios namesrvAddr brokerAddr prefix outputFile [scenario...]
//
//	scenarios Consumers ...  the scenarios of push consumers, all at once
//	scenarios FirstMessages ... see first.go
//	scenarios Worker ...     see worker.go
//	scenarios Transactor ... see transactor.go
package main

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type scenario struct {
	name string
	run  func(*peer, *steps)
}

var scenarios = []scenario{
	{"send sync", sendSync},
	{"send async", sendAsync},
	{"send oneway", sendOneway},
	{"send by selector", sendBySelector},
	{"send batch", sendBatch},
	{"send unicode", sendUnicode},
	{"illegal topics", illegalTopics},
	{"property bytes", propertyBytes},
	{"topic created by the client", createdTopics},
	{"topic created by a send", autoCreatedTopics},
	{"pull", pull},
	{"pull, tags", pullTags},
	{"push", push},
}

func main() {
	rlog.SetLogLevel("fatal")
	switch arguments := os.Args[1:]; arguments[0] {
	case "Consumers":
		runAtOnce(consumerScenarios, arguments[1:])
	case "FirstMessages":
		firstMessages(arguments[1:])
	case "Transactor":
		transact(arguments[1:])
	case "Worker":
		work(arguments[1:])
	default:
		runInTurn(scenarios, arguments)
	}
}

func runInTurn(scenarios []scenario, arguments []string) {
	client := newPeer(arguments[0], arguments[1], arguments[2])
	all := newAnswers(client)
	for _, scenario := range scenarios {
		if wanted(scenario, arguments) {
			begun := time.Now()
			scenario.run(client, all.scenario(scenario.name))
			fmt.Printf("%s: %d ms\n", scenario.name, time.Since(begun).Milliseconds())
		}
	}
	check(os.WriteFile(arguments[3], all.json(), 0o644))
}

// runAtOnce is for scenarios that spend their time waiting. Each has topics and groups of its own.
func runAtOnce(scenarios []scenario, arguments []string) {
	client := newPeer(arguments[0], arguments[1], arguments[2])
	all := newAnswers(client)
	var running sync.WaitGroup
	for _, scenario := range scenarios {
		if !wanted(scenario, arguments) {
			continue
		}
		running.Add(1)
		go func(steps *steps) {
			defer running.Done()
			begun := time.Now()
			defer func() {
				if failure := recover(); failure != nil {
					steps.step("broken off", func() (any, error) { return nil, fmt.Errorf("%v", failure) })
				}
				fmt.Printf("%s: %d ms\n", scenario.name, time.Since(begun).Milliseconds())
			}()
			scenario.run(client, steps)
		}(all.scenario(scenario.name))
	}
	running.Wait()
	check(os.WriteFile(arguments[3], all.json(), 0o644))
}

func wanted(scenario scenario, arguments []string) bool {
	return len(arguments) == 4 || slices.Contains(arguments[4:], scenario.name)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
