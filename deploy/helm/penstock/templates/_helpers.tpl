{{- define "penstock.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if contains $name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* What chooses the objects of a component: a dict with root and component. */}}
{{- define "penstock.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- define "penstock.image" -}}
{{ .image.repository }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end }}

{{/* The hosts of the broker, as its clients name it. */}}
{{- define "penstock.brokerURL" -}}
{{- $name := include "penstock.fullname" . }}
{{- if eq .Values.broker.mode "external" }}{{ required "broker.url: an external broker has an address" .Values.broker.url }}
{{- else if eq .Values.broker.mode "embedded" }}nats://{{ $name }}-server.{{ .Release.Namespace }}.svc:4222
{{- else }}
{{- $hosts := list }}
{{- range $i := until (int .Values.broker.cluster.replicas) }}
{{- $hosts = append $hosts (printf "nats://%s-broker-%d.%s-broker.%s.svc:4222" $name $i $name $.Release.Namespace) }}
{{- end }}
{{- join "," $hosts }}
{{- end }}
{{- end }}

{{/* What every pod has. No pod talks to the API of Kubernetes. Variables for services are off
since PENSTOCK_… are settings of the program, and a service's name would make some. */}}
{{- define "penstock.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* The parts that choose nodes, of a dict with nodeSelector, tolerations, affinity. */}}
{{- define "penstock.nodes" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A container that may do nothing beyond its own files. */}}
{{- define "penstock.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "penstock.podUser" -}}
runAsNonRoot: true
runAsUser: {{ .Values.user }}
runAsGroup: {{ .Values.user }}
fsGroup: {{ .Values.user }}
# Otherwise each mount of a volume would open its files to the group, and the program refuses
# a token that others may read.
fsGroupChangePolicy: OnRootMismatch
{{- end }}

{{/* Probes on the admin address. It answers once there is a pool, for which a process waits
as long as it takes: so the first probe is patient, and no other begins before it. */}}
{{- define "penstock.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 5
  failureThreshold: 120
livenessProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 20
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end }}
