{{- define "gpu-webhook.image" -}}
{{- $path := splitList "/" .Values.image.repository -}}
{{- if .Values.global.imageRegistry -}}
{{- $path = prepend (ternary (rest $path) $path (regexMatch "[.:]|^localhost$" (first $path))) .Values.global.imageRegistry -}}
{{- end -}}
{{- with .Values.image -}}
{{ join "/" $path }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{- /* One list for both configurations and for the Cluster document. */ -}}
{{- define "gpu-webhook.exempt" -}}
{{ append .Values.cluster.systemNamespaces .Release.Namespace | uniq | sortAlpha | toJson }}
{{- end -}}

{{- define "gpu-webhook.namespaces" -}}
{{- $selected := list (dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" (include "gpu-webhook.exempt" . | fromJsonArray)) -}}
{{- range $key, $value := .Values.namespaceSelector.matchLabels -}}
{{- $selected = append $selected (dict "key" $key "operator" "In" "values" (list $value)) -}}
{{- end -}}
{{ concat $selected (.Values.namespaceSelector.matchExpressions | default list) | toJson }}
{{- end -}}

{{- /* Of a container: the chart, its name, and its arguments in the base. */ -}}
{{- define "gpu-webhook.args" -}}
{{- $name := index . 1 -}}
{{- $own := index . 2 | fromJsonArray -}}
{{- with index . 0 -}}
{{- if and (has $name (list "webhook" "watcher" "settler")) (ne .Values.logLevel "info") -}}
{{- $own = append $own (printf "--log-level=%s" .Values.logLevel) -}}
{{- end -}}
{{- if and (eq $name "settler") .Values.rules -}}
{{- $own = append $own "--registers" -}}
{{- end -}}
{{ concat $own (get .Values.extraArgs $name | default list) | toJson | replace "%namespace%" .Release.Namespace }}
{{- end -}}
{{- end -}}

{{- define "gpu-webhook.apiServer" -}}
{{- $ports := list -}}
{{- range .Values.apiServerPorts -}}
{{- $ports = append $ports (dict "port" . "protocol" "TCP") -}}
{{- end -}}
{{ toJson $ports }}
{{- end -}}

{{- define "gpu-webhook.cluster" -}}
apiVersion: gpu-webhook.io/v1alpha1
kind: Cluster
metadata:
  name: default
spec:
  {{- $observe := ternary (dict "observe" true) (dict) (.Values.components.observeOnly | default false) }}
  {{- $exempt := dict "systemNamespaces" (include "gpu-webhook.exempt" . | fromJsonArray) }}
  {{- merge $exempt $observe .Values.cluster | toYaml | nindent 2 }}
{{- end -}}

{{- define "gpu-webhook.labels" -}}
{{ dict "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/version" .Chart.AppVersion "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version) | toJson }}
{{- end -}}
