{{/*
The capabilities that sources of the node role need, as a JSON list; takes the values of the role.
*/}}
{{- define "fabric-exporter.node.capabilities" -}}
{{- $sources := .config.sources | default dict }}
{{- $added := list }}
{{- if dig "optics" "enabled" false $sources }}{{ $added = append $added "NET_ADMIN" }}{{ end }}
{{- if dig "lldp" "listen" false $sources }}{{ $added = append $added "NET_RAW" }}{{ end }}
{{- toJson $added }}
{{- end }}

{{- define "fabric-exporter.node.security" -}}
{{- $added := include "fabric-exporter.node.capabilities" . | fromJsonArray }}
{{- if $added -}}
# Kubernetes gives added capabilities to root only.
runAsNonRoot: false
runAsUser: 0
{{ end }}
{{- include "fabric-exporter.container.unprivileged" . }}
{{- with $added }}
  add: [{{ join ", " . }}]
{{- end }}
{{- end }}

{{- define "fabric-exporter.node.prepare" -}}
# The kubelet creates the shared folder for root only. Jobs of any user write below it, as in /tmp: none may
# remove what belongs to another. In the folder itself only the exporter's group creates anything, so that no
# job can put a socket of its own in place of the exporter's. Root without capabilities can change only what
# root owns: a folder that an administrator gave to another user remains as it is.
- name: shared-folder
  {{- include "fabric-exporter.image" .root | nindent 2 }}
  command: [sh, -c]
  args:
    - >-
      install -d -m 1775 -g 65534 /run/fabric-exporter &&
      install -d -m 1777 /run/fabric-exporter/nccl /run/fabric-exporter/nccl-logs ||
      echo "/run/fabric-exporter remains as it is"
  resources:
    requests: {cpu: 10m, memory: 32Mi}
    limits: {memory: 32Mi}
  securityContext:
    runAsNonRoot: false
    runAsUser: 0
    runAsGroup: 65534
    {{- include "fabric-exporter.container.unprivileged" . | nindent 4 }}
  volumeMounts:
    - {name: shared, mountPath: /run/fabric-exporter}
{{- end }}
