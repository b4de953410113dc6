{{/* Names, labels, and the parts that several templates share. */}}

{{- define "ibex.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "ibex.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "ibex.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "ibex.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ibex.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ibex.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ibex.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "ibex.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "ibex.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "ibex.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "ibex.image" -}}
{{- $tag := default .Chart.AppVersion .Values.image.tag -}}
{{- if .Values.image.digest -}}
{{- printf "%s:%s@%s" .Values.image.repository $tag .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository $tag -}}
{{- end -}}
{{- end -}}

{{/* What ibex.toml holds: the server's own ConfigMap and the one of the migration have the same. */}}
{{- define "ibex.config" -}}
ibex.toml: |
  # Set by the chart's value `config`. The variables of the container win over this file.
  {{- .Values.config | nindent 2 }}
{{- end -}}

{{- define "ibex.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "ibex.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Settings of the chart itself. */}}
{{- define "ibex.env" -}}
- name: IBEX_ENV
  value: {{ .Values.env }}
- name: IBEX_SERVER__LISTEN
  value: 0.0.0.0:8080
- name: IBEX_SERVER__DRAIN_DELAY_MS
  value: {{ mul .Values.drain.delaySeconds 1000 | quote }}
- name: IBEX_SERVER__DRAIN_TIMEOUT_MS
  value: {{ mul .Values.drain.timeoutSeconds 1000 | quote }}
- name: IBEX_LOG__FORMAT
  value: json
{{- if eq .Values.mode "embedded" }}
- name: IBEX_STORE__PATH
  value: /var/lib/ibex/ibex.db
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "ibex.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
periodSeconds: {{ .probe.periodSeconds }}
timeoutSeconds: {{ .probe.timeoutSeconds }}
failureThreshold: {{ .probe.failureThreshold }}
{{- end -}}

{{/* The pod of both workloads. */}}
{{- define "ibex.podTemplate" -}}
metadata:
  labels:
    {{- include "ibex.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # Not every key is taken over by a running server: a changed file starts new pods.
    checksum/config: {{ include "ibex.config" . | sha256sum }}
    {{- with .Values.secret.generation }}
    ibex/secret-generation: {{ . | quote }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "ibex.serviceAccountName" . }}
  # It never asks the cluster for anything.
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext:
    {{- include "ibex.podSecurityContext" . | nindent 4 }}
  terminationGracePeriodSeconds: {{ add .Values.drain.delaySeconds .Values.drain.timeoutSeconds 15 }}
  containers:
    - name: ibex
      image: {{ include "ibex.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve]
      securityContext:
        {{- include "ibex.securityContext" . | nindent 8 }}
      ports:
        - name: http
          containerPort: 8080
          protocol: TCP
      env:
        {{- include "ibex.env" . | nindent 8 }}
      {{- if or .Values.secret.existingSecret .Values.extraEnvFrom }}
      envFrom:
        {{- with .Values.secret.existingSecret }}
        - secretRef:
            name: {{ . }}
        {{- end }}
        {{- with .Values.extraEnvFrom }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
      startupProbe:
        {{- include "ibex.probe" (dict "path" "/health" "probe" .Values.probes.startup) | nindent 8 }}
      livenessProbe:
        {{- include "ibex.probe" (dict "path" "/health" "probe" .Values.probes.liveness) | nindent 8 }}
      readinessProbe:
        {{- include "ibex.probe" (dict "path" "/ready" "probe" .Values.probes.readiness) | nindent 8 }}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        # The whole folder, not one file of it: a mounted file would never change.
        - name: config
          mountPath: /etc/ibex
          readOnly: true
        {{- if eq .Values.mode "embedded" }}
        - name: state
          mountPath: /var/lib/ibex
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: config
      configMap:
        name: {{ include "ibex.fullname" . }}
    {{- if and (eq .Values.mode "embedded") .Values.persistence.existingClaim }}
    - name: state
      persistentVolumeClaim:
        claimName: {{ .Values.persistence.existingClaim }}
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml .Values.topologySpreadConstraints | nindent 4 }}
  {{- else if eq .Values.mode "replicas" }}
  topologySpreadConstraints:
    {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "ibex.selectorLabels" $ | nindent 10 }}
      # Only pods of the same version count, so that an update ends as evenly as it began.
      matchLabelKeys: [pod-template-hash]
    {{- end }}
  {{- end }}
{{- end -}}
