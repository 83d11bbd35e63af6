module gpu-webhook.io/bench/load

go 1.26.0
