"""Clusters as `kubectl get -o yaml` prints them (`seen.yaml`), and the Cluster document of each (`cluster.yaml`)."""
