module gpu-webhook.io/bench/noop

go 1.26.0
