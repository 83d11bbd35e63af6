module gpu-webhook.io/bench/writer

go 1.26.0
