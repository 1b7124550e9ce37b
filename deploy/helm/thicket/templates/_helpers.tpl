{{- define "thicket.name" -}}
{{- if contains "thicket" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-thicket" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "thicket.selector" -}}
app.kubernetes.io/name: thicket
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "thicket.labels" -}}
{{ include "thicket.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "thicket.secret" -}}
{{ .Values.auth.existingSecret | default (include "thicket.name" .) }}
{{- end }}

{{- define "thicket.tlsSecret" -}}
{{ .Values.tls.existingSecret | default (printf "%s-tls" (include "thicket.name" .)) }}
{{- end }}

{{- define "thicket.hasAcl" -}}
{{- if or .Values.auth.acl .Values.auth.aclInSecret }}yes{{ end }}
{{- end }}

{{/* The ports of a pod and of the service: name and number. */}}
{{- define "thicket.ports" -}}
{{- $ports := list }}
{{- if .Values.tls.plainPort }}{{ $ports = append $ports (dict "name" "mqtt" "port" 1883) }}{{ end }}
{{- if .Values.tls.enabled }}{{ $ports = append $ports (dict "name" "mqtts" "port" 8883) }}{{ end }}
{{- if and .Values.websocket.enabled .Values.tls.plainPort }}{{ $ports = append $ports (dict "name" "ws" "port" 8083) }}{{ end }}
{{- if and .Values.websocket.enabled .Values.tls.enabled }}{{ $ports = append $ports (dict "name" "wss" "port" 8084) }}{{ end }}
{{- toJson (dict "ports" $ports) }}
{{- end }}

{{/* Where nodes listen. Other nodes come to 1883 in any case; without `plainPort` no service leads clients there. */}}
{{- define "thicket.listen" -}}
{{- $at := .Values.listenAddress }}
{{- $all := list (printf "%s:1883" $at) }}
{{- if .Values.tls.enabled }}{{ $all = append $all (printf "tls://%s:8883" $at) }}{{ end }}
{{- if and .Values.websocket.enabled .Values.tls.plainPort }}{{ $all = append $all (printf "ws://%s:8083" $at) }}{{ end }}
{{- if and .Values.websocket.enabled .Values.tls.enabled }}{{ $all = append $all (printf "wss://%s:8084" $at) }}{{ end }}
{{- join "," $all }}
{{- end }}

{{- define "thicket.check" -}}
{{- if not (or .Values.auth.allowAnonymous .Values.auth.existingSecret .Values.auth.users) }}
{{- fail "say who may connect: auth.users (the output of `thicket passwd NAME`), auth.existingSecret, or auth.allowAnonymous=true" }}
{{- end }}
{{- if and (not .Values.tls.plainPort) (not .Values.tls.enabled) }}
{{- fail "tls.plainPort=false needs tls.enabled=true, or clients had no port" }}
{{- end }}
{{- if and .Values.tls.enabled (not .Values.tls.existingSecret) (not .Values.tls.certManager.enabled) }}
{{- fail "tls.enabled needs tls.existingSecret or tls.certManager.enabled" }}
{{- end }}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuer.name) }}
{{- fail "tls.certManager.enabled needs tls.certManager.issuer.name" }}
{{- end }}
{{- /* What would be rendered without effect. */}}
{{- if and (not .Values.tls.enabled) (or .Values.tls.existingSecret .Values.tls.certManager.enabled) }}
{{- fail "tls.existingSecret and tls.certManager have no effect without tls.enabled=true" }}
{{- end }}
{{- if and (not .Values.tls.certManager.enabled) (or .Values.tls.certManager.issuer.name .Values.tls.certManager.dnsNames) }}
{{- fail "tls.certManager.issuer.name and tls.certManager.dnsNames have no effect without tls.certManager.enabled=true" }}
{{- end }}
{{- if and .Values.tls.existingSecret .Values.tls.certManager.enabled }}
{{- fail "tls.existingSecret and tls.certManager.enabled: choose one" }}
{{- end }}
{{- if and .Values.auth.existingSecret (or .Values.auth.users .Values.auth.acl) }}
{{- fail "auth.users and auth.acl have no effect with auth.existingSecret: put them into that secret (its keys users and acl, with auth.aclInSecret=true)" }}
{{- end }}
{{- if and .Values.auth.aclInSecret (not .Values.auth.existingSecret) }}
{{- fail "auth.aclInSecret needs auth.existingSecret; for the secret that the chart makes use auth.acl" }}
{{- end }}
{{- if and .Values.service.loadBalancerSourceRanges (ne .Values.service.type "LoadBalancer") }}
{{- fail "service.loadBalancerSourceRanges has no effect without service.type=LoadBalancer" }}
{{- end }}
{{- if .Values.autoscaling.enabled }}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) }}
{{- fail "autoscaling.minReplicas is above autoscaling.maxReplicas" }}
{{- end }}
{{- if not (or .Values.autoscaling.targetCPUUtilizationPercentage .Values.autoscaling.podMetrics) }}
{{- fail "autoscaling.enabled needs autoscaling.targetCPUUtilizationPercentage or autoscaling.podMetrics" }}
{{- end }}
{{- end }}
{{- if lt (int .Values.terminationGracePeriodSeconds) (add (int .Values.drain.timeoutSeconds) 10 | int) }}
{{- fail "terminationGracePeriodSeconds must be at least 10 above drain.timeoutSeconds: a node takes up to nine seconds to stop" }}
{{- end }}
{{- end }}
