{{/*
Names and labels. Those of a role take a dict: `root`, the name of the `role`, and its `values`.
*/}}
{{- define "fabric-exporter.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "fabric-exporter.fullname" -}}
{{- $name := include "fabric-exporter.name" . }}
{{- $both := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) }}
{{- .Values.fullnameOverride | default $both | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "fabric-exporter.selector" -}}
app.kubernetes.io/name: {{ include "fabric-exporter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fabric-exporter.labels" -}}
{{ include "fabric-exporter.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "fabric-exporter.role.name" -}}
{{ include "fabric-exporter.fullname" .root }}-{{ .role }}
{{- end }}

{{- define "fabric-exporter.role.selector" -}}
{{ include "fabric-exporter.selector" .root }}
app.kubernetes.io/component: {{ .role }}
{{- end }}

{{- define "fabric-exporter.role.metadata" -}}
name: {{ include "fabric-exporter.role.name" . }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "fabric-exporter.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .role }}
{{- end }}

{{/*
Names of the enabled roles, as a JSON list.
*/}}
{{- define "fabric-exporter.roles" -}}
{{- $enabled := list }}
{{- range $role := list "node" "switches" "infiniband" "collector" }}
{{- if (index $.Values $role).enabled }}{{ $enabled = append $enabled $role }}{{ end }}
{{- end }}
{{- toJson $enabled }}
{{- end }}

{{/*
The strictest Pod Security level that the pods of the enabled roles allow.
*/}}
{{- define "fabric-exporter.podSecurity" -}}
{{- $infiniband := .Values.infiniband }}
{{- if or .Values.node.enabled (and $infiniband.enabled (not $infiniband.deviceResource)) -}}
privileged
{{- else if $infiniband.enabled -}}
baseline
{{- else -}}
restricted
{{- end }}
{{- end }}

{{/*
The paths of files of the chart, as keys of a JSON object; takes the `root` and a `pattern`. The files are links to others
of the project, which some tools leave out.
*/}}
{{- define "fabric-exporter.files" -}}
{{- $found := dict }}
{{- range $path, $_ := .root.Files.Glob .pattern }}{{ $_ := set $found $path true }}{{ end }}
{{- if not $found }}
{{- fail (printf "%s: the chart has no such file; links were not followed: make a package of it by `helm package`" .pattern) }}
{{- end }}
{{- toJson $found }}
{{- end }}
