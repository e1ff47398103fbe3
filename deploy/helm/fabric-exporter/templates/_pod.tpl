{{/*
What the pods of all roles have in common. Each takes what names and labels of a role do.
*/}}
{{- define "fabric-exporter.pod.metadata" -}}
labels:
  {{- include "fabric-exporter.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .role }}
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  kubectl.kubernetes.io/default-container: fabric-exporter
  {{- if .root.Values.restartOnChange }}
  checksum/config: {{ include "fabric-exporter.configuration" . | sha256sum }}
  {{- end }}
  {{- with .values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "fabric-exporter.pod.spec" -}}
serviceAccountName: {{ include "fabric-exporter.role.name" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
# The daemon stops within 5 s; the rest is for a slow node.
terminationGracePeriodSeconds: 10
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/*
A pod without rights. The group owns mounted Secrets, so that their files need not be world-readable.
*/}}
{{- define "fabric-exporter.pod.unprivileged" -}}
runAsNonRoot: true
runAsUser: 65534
runAsGroup: 65534
# This group owns mounted Secrets, so that their files need not be world-readable.
fsGroup: 65534
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "fabric-exporter.pod.volumes" -}}
# A directory, not a subPath: changes of the ConfigMap arrive in the running pod, and a reload applies them.
- name: config
  configMap:
    name: {{ include "fabric-exporter.role.name" . }}
{{- with .values.secret }}
# The Secret is not part of this, so that none is committed. The pod waits until it is created, with an event.
- name: credentials
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with .root.Values.web.configSecret }}
- name: web
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
