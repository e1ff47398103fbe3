{{/*
The configuration of a role: an object of files for the data of its ConfigMap. Takes what names and labels of a role do.
*/}}
{{- define "fabric-exporter.configuration" -}}
{{- if eq .role "collector" }}
{{- include "fabric-exporter.collector.configuration" . }}
{{- else -}}
{{- $config := .values.config }}
{{- if eq .role "node" }}{{ $config = include "fabric-exporter.node.config" .values | fromJson }}{{ end -}}
config.yaml: |
  {{- toYaml $config | nindent 2 }}
{{- end }}
{{- end }}

{{/*
One file for each pod of the collector, by its name: its share of the slots 00 to ff.
*/}}
{{- define "fabric-exporter.collector.configuration" -}}
{{- $values := .values }}
{{- $name := include "fabric-exporter.role.name" . }}
{{- $_ := dig "mqtt" "broker" "" $values.config | required "collector.config.mqtt.broker: give the address of your broker" }}
{{- $shards := int $values.shards }}
{{- range $pod := until (int (mul $shards $values.copies)) }}
{{- $shard := mod $pod $shards }}
{{- $first := div (mul $shard 256) $shards }}
{{- $last := sub (div (mul (add $shard 1) 256) $shards) 1 }}
{{- $slots := dict "collector" (dict "slots" (printf "%02x-%02x" $first $last)) }}
{{ $name }}-{{ $pod }}.yaml: |
  {{- mergeOverwrite (deepCopy $values.config) $slots | toYaml | nindent 2 }}
{{- end }}
{{- end }}
