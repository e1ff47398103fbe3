{{/*
The configuration of the node role, as a JSON object: that of the values, with the source `pods` as `pods` says. Takes the
values of the role.
*/}}
{{- define "fabric-exporter.node.config" -}}
{{- $config := deepCopy .config }}
{{- with .pods }}
{{- if .enabled }}
{{- $kubelet := .podResources | ternary (printf "%s/pod-resources/kubelet.sock" .kubeletFolder) "" }}
{{- $source := dict "enabled" true "processes" .processes "kubelet" $kubelet }}
{{- $config = mergeOverwrite $config (dict "sources" (dict "pods" $source)) }}
{{- else if dig "sources" "pods" "enabled" false $config }}
{{- fail "node.config.sources.pods.enabled: set node.pods.enabled, which adds the rights that the source needs" }}
{{- end }}
{{- end }}
{{- toJson $config }}
{{- end }}

{{/*
The capabilities that sources of the node role need, as a JSON list; takes the values of the role.
*/}}
{{- define "fabric-exporter.node.capabilities" -}}
{{- $sources := .config.sources | default dict }}
{{- $added := list }}
{{- if dig "optics" "enabled" false $sources }}{{ $added = append $added "NET_ADMIN" }}{{ end }}
{{- if dig "lldp" "listen" false $sources }}{{ $added = append $added "NET_RAW" }}{{ end }}
{{- with .pods }}
{{- if .enabled }}{{ $added = append $added "SYS_ADMIN" }}{{ end }}
{{- if and .enabled .processes }}{{ $added = append $added "SYS_PTRACE" }}{{ end }}
{{- end }}
{{- toJson $added }}
{{- end }}

{{/*
What the source `pods` reads of the host: mounts of the container, and their volumes. Take the values of the role.
*/}}
{{- define "fabric-exporter.node.podMounts" -}}
# HostToContainer: the namespace of a pod is a mount, which comes and goes while this container runs.
- {name: namespaces, mountPath: /var/run/netns, readOnly: true, mountPropagation: HostToContainer}
- {name: cni, mountPath: /var/lib/cni, readOnly: true}
- {name: pod-logs, mountPath: /var/log/pods, readOnly: true}
{{- if .pods.podResources }}
- {name: pod-resources, mountPath: {{ .pods.kubeletFolder }}/pod-resources, readOnly: true}
{{- end }}
{{- end }}

{{- define "fabric-exporter.node.podVolumes" -}}
- name: namespaces
  hostPath: {path: /var/run/netns, type: DirectoryOrCreate}
# Results of libcni, in `results` and of Multus in `multus/results`, which not every node has.
- name: cni
  hostPath: {path: /var/lib/cni, type: DirectoryOrCreate}
- name: pod-logs
  hostPath: {path: /var/log/pods, type: Directory}
{{- if .pods.podResources }}
# The folder, not the socket in it, which is another one after a restart of kubelet.
- name: pod-resources
  hostPath: {path: {{ .pods.kubeletFolder }}/pod-resources, type: Directory}
{{- end }}
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
