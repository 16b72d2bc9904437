import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.spring.annotation.RocketMQMessageListener;
import org.apache.rocketmq.spring.core.RocketMQListener;
import org.apache.rocketmq.spring.core.RocketMQTemplate;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;

/**
 * Sends and push-consumes with rocketmq-spring: a template in one application, a listener in the next.
 *
 * Arguments: name server, topic, group, number of messages. Prints the bodies that arrived, one in a line.
 */
public class SpringClient {
    static final long WITHIN_S = 60;
    static final Set<String> ARRIVED = new ConcurrentSkipListSet<>();
    static CountDownLatch missing;

    @SpringBootConfiguration
    @EnableAutoConfiguration
    public static class Sender {
    }

    @SpringBootConfiguration
    @EnableAutoConfiguration
    public static class Receiver {
        @Bean
        public Listener listener() {
            return new Listener();
        }
    }

    @RocketMQMessageListener(topic = "${interop.topic}", consumerGroup = "${interop.group}")
    public static class Listener implements RocketMQListener<String> {
        @Override
        public void onMessage(String body) {
            if (ARRIVED.add(body)) {
                missing.countDown();
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[3]);
        missing = new CountDownLatch(count);
        try (ConfigurableApplicationContext sender = start(Sender.class, arguments)) {
            RocketMQTemplate template = sender.getBean(RocketMQTemplate.class);
            for (int number = 0; number < count; number++) {
                SendStatus status = template.syncSend(arguments[1] + ":a", "m" + number).getSendStatus();
                if (status != SendStatus.SEND_OK) {
                    throw new IllegalStateException("not sent: " + status);
                }
            }
        }
        try (ConfigurableApplicationContext receiver = start(Receiver.class, arguments)) {
            missing.await(WITHIN_S, TimeUnit.SECONDS);
            ARRIVED.forEach(body -> System.out.println("arrived " + body));
        }
        System.out.println("finished");
        System.exit(0);
    }

    static ConfigurableApplicationContext start(Class<?> application, String[] arguments) {
        return new SpringApplicationBuilder(application)
            .properties(
                "rocketmq.name-server=" + arguments[0],
                "rocketmq.producer.group=" + arguments[2] + "-producer",
                "interop.topic=" + arguments[1],
                "interop.group=" + arguments[2],
                "spring.main.web-application-type=none",
                "spring.main.banner-mode=off",
                "logging.level.root=WARN")
            .run();
    }
}
