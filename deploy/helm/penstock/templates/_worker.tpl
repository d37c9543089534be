{{/* The pod of a group of workers: a dict with root, group and w, its values. */}}
{{- define "penstock.workerLabels" -}}
{{ include "penstock.selector" (dict "root" .root "component" "worker") }}
penstock.run/workers: {{ .group }}
{{- end }}

{{- define "penstock.workerCheck" -}}
{{- $w := .w }}
{{- if and (eq $w.mode "pod") (ne $w.kind "ScaledJob") }}
{{- fail (printf "workers.%s: mode pod has no jail but the pod, so each job needs a pod of its own: kind ScaledJob" .group) }}
{{- end }}
{{- if and (eq $w.kind "ScaledJob") (not $w.scale.enabled) }}
{{- fail (printf "workers.%s: KEDA starts the pods of kind ScaledJob: scale.enabled" .group) }}
{{- end }}
{{- end }}

{{- define "penstock.workerPod" -}}
{{- $name := include "penstock.fullname" .root }}
{{- $w := .w }}
{{- $once := eq $w.kind "ScaledJob" }}
metadata:
  labels:
    {{- include "penstock.workerLabels" . | nindent 4 }}
    app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  annotations:
    penstock.run/settings: {{ toYaml $w.settings | sha256sum | trunc 16 | quote }}
    {{- if $once }}
    # A node is not given up for its other pods while a job runs here.
    cluster-autoscaler.kubernetes.io/safe-to-evict: "false"
    karpenter.sh/do-not-disrupt: "true"
    {{- end }}
    {{- with $w.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ $name }}-worker
  {{- include "penstock.pod" .root | nindent 2 }}
  {{- with $w.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with $w.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  restartPolicy: {{ $once | ternary "Never" "Always" }}
  # SIGTERM drains a worker, so there is no hook before it: a hook could only ask from inside what
  # the signal says, and "penstock worker drain" needs a credential of an operator, which no
  # worker should have. The minute is for handing back and for storing.
  terminationGracePeriodSeconds: {{ add $w.drainSeconds 60 }}
  {{- if eq $w.mode "nested" }}
  # The pod's root is nobody on the node. Kubernetes wants it for procMount.
  hostUsers: false
  {{- end }}
  securityContext:
    {{- include "penstock.podUser" .root | nindent 4 }}
    {{- if eq $w.mode "nested" }}
    # As the runtime's own profile, and namespaces for jails: without them bubblewrap makes none.
    seccompProfile: {type: Localhost, localhostProfile: {{ $w.seccompProfile }}}
    {{- else }}
    seccompProfile: {type: RuntimeDefault}
    {{- end }}
  {{- with include "penstock.nodes" $w | trim }}{{ . | nindent 2 }}{{ end }}
  containers:
    - name: worker
      image: {{ include "penstock.image" (dict "root" .root "image" .root.Values.image.worker) }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      # The program is the first process of the pod: it removes keys from its environment by
      # starting over, and a wrapper before it would keep them readable for agents.
      command: [penstock]
      args:
        - worker
        - --config=/etc/penstock/settings/penstock.yaml
        - --admin={{ .root.Values.bind }}:9091
        - --backend={{ eq $w.mode "nested" | ternary "bwrap" "none" }}
        {{- if $once }}
        - --slots=1
        - --max-jobs=1
        # The job that this pod was started for may have gone to another worker.
        - --idle-timeout=60s
        {{- else }}
        - --slots={{ $w.slots }}
        {{- end }}
        - --queues={{ join "," $w.queues }}
        {{- with $w.labels }}
        - --labels={{ join "," . }}
        {{- end }}
        - --drain={{ $w.drainSeconds }}s
        - --log-format=json
        - --log-level=info
      env:
        - {name: PENSTOCK_DATA, value: /var/lib/penstock/worker}
        - {name: HOME, value: /tmp}
        - name: PENSTOCK_SERVER
          value: {{ include "penstock.brokerURL" .root | quote }}
        - {name: PENSTOCK_CREDS, value: /etc/penstock/credentials/worker.creds}
        - {name: PENSTOCK_TLS_CA, value: /etc/penstock/tls/ca.crt}
        - name: PENSTOCK_WORKER_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
      {{- with $w.environmentSecret }}
      envFrom:
        - secretRef: {name: {{ . }}}
      {{- end }}
      ports:
        - {name: admin, containerPort: 9091}
      {{- include "penstock.probes" .root | nindent 6 }}
      resources: {{- toYaml $w.resources | nindent 8 }}
      securityContext:
        {{- include "penstock.confined" .root | nindent 8 }}
        {{- if eq $w.mode "nested" }}
        # A jail has a /proc of its own, which the kernel refuses where parts of the pod's are covered.
        procMount: Unmasked
        {{- end }}
      volumeMounts:
        - {name: data, mountPath: /var/lib/penstock}
        - {name: tmp, mountPath: /tmp}
        - {name: settings, mountPath: /etc/penstock/settings, readOnly: true}
        - {name: credentials, mountPath: /etc/penstock/credentials, readOnly: true}
        - {name: tls, mountPath: /etc/penstock/tls, readOnly: true}
  volumes:
    - name: data
      emptyDir: {sizeLimit: {{ $w.storage }}}
    - name: tmp
      emptyDir: {sizeLimit: 10Gi}
    - name: settings
      configMap: {name: {{ $name }}-worker-{{ .group }}}
    - name: credentials
      secret: {secretName: {{ $w.credentialsSecret }}, defaultMode: 0440}
    # The authority alone: the server's key is in the same Secret.
    - name: tls
      secret:
        secretName: {{ .root.Values.tls.secret }}
        items: [{key: ca.crt, path: ca.crt}]
{{- end }}
