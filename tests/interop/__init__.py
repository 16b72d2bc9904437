"""The real Apache RocketMQ clients and servers, and what they must agree on with ours."""
