"""Golden cases: a folder is a case, and its name is the sentence that it proves.

    tests/cases/<group>/<the-sentence>/
      pod.yaml       the pod as its author wrote it
      mutated.yaml   the same pod after /mutate ... or
      denied.txt     the whole message its author reads
      refused.txt    what /validate says of the result, where a policy is against it
      warnings.txt   what both warn of, one to a line; without the file there must be no warning
      rules/*.yaml   files that replace or join the shipped rules of the same name

A folder without pod.yaml is about the rules: problems.txt is all that is said of them. Or it is about an object:
applied.yaml (or deleted.yaml) is a TenantPolicy, an Exemption or a workload, around.yaml has the namespaces,
policies, usage and nodes of the cluster, and the object as it was before. warnings.txt or denied.txt is what its
author is told.

To add a case write pod.yaml, run `python -m tests.cases --write`, and read what it wrote: it is what the webhook
does, which is not yet what it should do. Without `--write` it shows how the expectations differ from what happens.

Every pod is tried twice: as written, and as the API server serves it to webhooks (`served`). `denied.txt` and
`warnings.txt` are of the second, because that is what people get to see.
"""
