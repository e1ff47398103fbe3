{{/*
What the containers of all roles have in common. Each takes what names and labels of a role do.
*/}}
{{- define "fabric-exporter.image" -}}
{{- with .Values.image -}}
# Prepend the registry to which you pushed the image.
image: {{ .repository }}{{ with .digest }}@{{ . }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
imagePullPolicy: {{ .pullPolicy }}
{{- end }}
{{- end }}

{{- define "fabric-exporter.container.args" -}}
- --log.format=json
{{- if .root.Values.web.configSecret }}
- --web.config.file=/etc/fabric-exporter-web/web.yml
{{- end }}
{{- with .values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "fabric-exporter.container.probe" -}}
{{- $web := .root.Values.web -}}
{{- if eq $web.probes "tcp" -}}
tcpSocket: {port: metrics}
{{- else -}}
httpGet: {path: {{ .path }}, port: metrics{{ if eq $web.scheme "https" }}, scheme: HTTPS{{ end }}}
{{- end }}
{{- end }}

{{- define "fabric-exporter.container.ports" -}}
ports:
  - {name: metrics, containerPort: {{ .root.Values.web.port }}, protocol: TCP}
readinessProbe:
  {{ include "fabric-exporter.container.probe" (dict "root" .root "path" "/-/ready") }}
  periodSeconds: 10
  timeoutSeconds: 5
livenessProbe:
  # Long timeouts: a job that uses all CPUs of a node is no reason for a restart, which loses the rates.
  {{ include "fabric-exporter.container.probe" (dict "root" .root "path" "/-/healthy") }}
  initialDelaySeconds: 10
  periodSeconds: 15
  timeoutSeconds: 10
  failureThreshold: 4
# No CPU limit: throttling would delay reads and scrapes. Memory and CPU grow with the number of ports, ranks
# and jobs: compare with process_resident_memory_bytes and process_cpu_seconds_total.
resources:
  {{- $resources := deepCopy .values.resources }}
  {{- with get .values "deviceResource" }}
  {{- $resources = mergeOverwrite $resources (dict "limits" (dict . 1)) }}
  {{- end }}
  {{- toYaml $resources | nindent 2 }}
{{- end }}

{{- define "fabric-exporter.container.unprivileged" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "fabric-exporter.container.mounts" -}}
- {name: config, mountPath: /etc/fabric-exporter, readOnly: true}
{{- if .values.secret }}
- {name: credentials, mountPath: /run/secrets/fabric-exporter, readOnly: true}
{{- end }}
{{- if .root.Values.web.configSecret }}
- {name: web, mountPath: /etc/fabric-exporter-web, readOnly: true}
{{- end }}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
