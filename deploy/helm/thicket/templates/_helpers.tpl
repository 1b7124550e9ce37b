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
{{- end }}
