{{/*
Parts of PodMonitor and ServiceMonitor; each takes a dict: `root` and the `values` of the monitor.
*/}}
{{- define "fabric-exporter.monitor.metadata" -}}
name: {{ include "fabric-exporter.fullname" .root }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "fabric-exporter.labels" .root | nindent 2 }}
  {{- with .values.labels }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  # kube-prometheus-stack looks only at objects with the name of its Helm release:
  # release: kube-prometheus-stack
  {{- end }}
{{- end }}

{{- define "fabric-exporter.monitor.target" -}}
namespaceSelector:
  matchNames: [{{ .values.namespaces | default (list .root.Release.Namespace) | join ", " }}]
selector:
  matchLabels:
    {{- include "fabric-exporter.selector" .root | nindent 4 }}
{{- end }}

{{- define "fabric-exporter.monitor.endpoint" -}}
- port: metrics
  path: /metrics
  scheme: {{ .root.Values.web.scheme }}
  interval: {{ .values.interval }}
  scrapeTimeout: {{ .values.scrapeTimeout }}
  relabelings:
    # Lets queries join with kube-state-metrics and the GPU exporters.
    - action: replace
      sourceLabels: [__meta_kubernetes_pod_node_name]
      targetLabel: node
  {{- with .values.endpoint }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
