// Sends and push-consumes with npm's `rocketmq-nodejs`, an addon around Apache's C++ client library.
//
// Arguments: name server, topic, group, number of messages. Prints the bodies that arrived, one in a line. The
// package is found through NODE_PATH; its logs go below HOME.

"use strict";

const { Producer, PushConsumer } = require("rocketmq-nodejs");

const WITHIN_MS = 60_000;

async function main(namesrv, topic, group, count) {
  const options = { nameServer: namesrv };
  const producer = new Producer(group + "-producer", "sends", options);
  await producer.start();
  for (let number = 0; number < count; number++) {
    const result = await producer.send(topic, `m${number}`, { keys: `k${number}`, tags: "a" });
    if (result.status !== 0) throw new Error(`not sent: ${JSON.stringify(result)}`);
  }

  const arrived = new Set();
  const consumer = new PushConsumer(group, "consumes", options);
  consumer.subscribe(topic, "*");
  await new Promise((resolve, reject) => {
    setTimeout(resolve, WITHIN_MS);
    consumer.on("message", (message, ack) => {
      arrived.add(message.body);
      ack.done();
      if (arrived.size === count) setTimeout(resolve, 200); // for one too many
    });
    consumer.start().catch(reject);
  });
  for (const body of [...arrived].sort()) console.log(`arrived ${body}`);
  await consumer.shutdown();
  await producer.shutdown();
  console.log("finished");
}

main(process.argv[2], process.argv[3], process.argv[4], Number(process.argv[5])).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
