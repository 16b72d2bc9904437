// Runs every scenario in one process, against one name server, and writes what the Go client saw.
// Usage: scenarios namesrvAddr brokerAddr prefix outputFile [scenario...]
package main

import (
	"fmt"
	"os"
	"slices"
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
	arguments := os.Args[1:]
	client := newPeer(arguments[0], arguments[1], arguments[2])
	all := newAnswers(client)
	for _, scenario := range scenarios {
		if len(arguments) > 4 && !slices.Contains(arguments[4:], scenario.name) {
			continue
		}
		begun := time.Now()
		scenario.run(client, all.scenario(scenario.name))
		fmt.Printf("%s: %d ms\n", scenario.name, time.Since(begun).Milliseconds())
	}
	check(os.WriteFile(arguments[3], all.json(), 0o644))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
