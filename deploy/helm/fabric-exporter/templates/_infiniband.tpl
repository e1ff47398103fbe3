{{/*
The rights of the container that sends MADs: root, who owns /dev/infiniband/umad*.
*/}}
{{- define "fabric-exporter.infiniband.security" -}}
runAsUser: 0
{{- if .values.deviceResource }}
{{ include "fabric-exporter.container.unprivileged" . }}
{{- else }}
# A container can open only devices that are assigned to it; a mount assigns none. With a device plugin for
# umad devices: its resource in `resources`, `privileged: false`, and no volume `devices` (the chart's value
# `infiniband.deviceResource`).
privileged: true
readOnlyRootFilesystem: true
{{- end }}
{{- end }}
