//! Sends and push-consumes with the crate `rocketmq-client-rust`.
//!
//! Arguments: name server, topic, group, number of messages. Prints the bodies that arrived, one in a line.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rocketmq_client_rust::{
    ClientResult, ClientRuntime, ClientRuntimeConfig, ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus,
    DefaultMQProducer, DefaultMQPushConsumer, MQPushConsumer, MessageListenerConcurrently,
};
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_single::Message;
use rocketmq_observability::TelemetryRuntimeGuard;
use rocketmq_runtime::RuntimeOwner;

const WITHIN: Duration = Duration::from_secs(60);
const SEND_TIMEOUT_MS: u64 = 5000;

#[derive(Clone, Default)]
struct Arrived(Arc<Mutex<BTreeSet<String>>>);

impl MessageListenerConcurrently for Arrived {
    fn consume_message(
        &self,
        messages: &[&MessageExt],
        _context: &ConsumeConcurrentlyContext,
    ) -> ClientResult<ConsumeConcurrentlyStatus> {
        for message in messages {
            let body = message.body().unwrap_or_default();
            self.0.lock().unwrap().insert(String::from_utf8_lossy(&body).into_owned());
        }
        Ok(ConsumeConcurrentlyStatus::ConsumeSuccess)
    }
}

async fn run(runtime: Arc<ClientRuntime>, arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let (namesrv, topic, group) = (&arguments[1], &arguments[2], &arguments[3]);
    let count: usize = arguments[4].parse()?;
    let mut producer = DefaultMQProducer::builder(runtime.clone())
        .producer_group(format!("{group}-producer"))
        .name_server_addr(namesrv.clone())
        .build();
    producer.start().await?;
    for number in 0..count {
        let message = Message::builder().topic(topic.as_str()).body(format!("m{number}")).build()?;
        producer.send_with_timeout(message, SEND_TIMEOUT_MS).await?;
    }

    let arrived = Arrived::default();
    let mut consumer = DefaultMQPushConsumer::builder(runtime)
        .consumer_group(group.clone())
        .name_server_addr(namesrv.clone())
        .build();
    consumer.subscribe(topic.as_str(), "*").await?;
    consumer.register_message_listener_concurrently(arrived.clone());
    consumer.start().await?;
    let begun = Instant::now();
    while arrived.0.lock().unwrap().len() < count && begun.elapsed() < WITHIN {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for body in arrived.0.lock().unwrap().iter() {
        println!("arrived {body}");
    }
    consumer.shutdown().await;
    producer.shutdown().await;
    println!("finished");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let owner = RuntimeOwner::new()?;
    let telemetry = TelemetryRuntimeGuard::noop();
    let runtime = ClientRuntime::try_new(
        owner.root_context().component("interop"),
        ClientRuntimeConfig::default(),
        telemetry.handle(),
    )?;
    owner.block_on(run(runtime, &arguments))
}
