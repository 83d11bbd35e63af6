{{- define "gpu-webhook.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{- /* One list for both configurations and for the Cluster document. */ -}}
{{- define "gpu-webhook.exempt" -}}
{{ append .Values.cluster.systemNamespaces .Release.Namespace | uniq | sortAlpha | toJson }}
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
