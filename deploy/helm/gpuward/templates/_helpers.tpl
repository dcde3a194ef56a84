{{/* The name that NVIDIA's chart has, which labels and selectors of its users ask for. */}}
{{- define "gpuward.name" -}}
{{ .Values.nameOverride | default "gpu-operator" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "gpuward.labels" -}}
app.kubernetes.io/name: {{ include "gpuward.name" . | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- with .Values.operator.labels }}
{{ include "gpuward.strings" . }}
{{- end }}
{{- end -}}

{{/* The full name of an image of `repository`, `image` and `version`, which may be a digest; nothing where a part is missing. */}}
{{- define "gpuward.reference" -}}
{{- $version := .version | default "" | include "gpuward.text" -}}
{{- if and .repository .image $version -}}
{{ .repository }}/{{ .image }}{{ hasPrefix "sha256:" $version | ternary "@" ":" }}{{ $version }}
{{- else if not (or .repository $version) -}}
{{ .image }}
{{- end -}}
{{- end -}}

{{- define "gpuward.image" -}}
{{- $image := include "gpuward.reference" (include "gpuward.ownImage" . | fromJson) -}}
{{- $part := "[a-z0-9]+([._-]+[a-z0-9]+)*" -}}
{{- $registry := "([A-Za-z0-9.-]+|\\[[0-9a-fA-F:]+\\])(:[0-9]+)?/" -}}
{{- $version := "(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?" -}}
{{- if not (regexMatch (printf "^(%s)?%s(/%s)*%s$" $registry $part $part $version) $image) -}}
{{- fail (printf "operator.repository, image and version make %s, which is no name of an image. Write them without a scheme, as registry.example/team, gpuward and 0.1.0." $image) -}}
{{- end -}}
{{ $image }}
{{- end -}}

{{/* The operator's image, in parts. Without a repository, operator.image is its full name, as in a ClusterPolicy. */}}
{{- define "gpuward.ownImage" -}}
{{- $repository := .Values.operator.repository | default "" -}}
{{- $image := .Values.operator.image | default "" -}}
{{- $version := include "gpuward.version" . -}}
{{- if not $image -}}
{{- fail "operator.image is empty. Name the operator's image." -}}
{{- end -}}
{{- /* A mirror may have the names of other registries as folders: only the default is surely meant for no such name. */ -}}
{{- if and (eq $repository "docker.io/library") (regexMatch "^[^/]*[.:][^/]*/" $image) -}}
{{- fail (printf "operator.image is %s, which names a registry, and operator.repository is %s. Set operator.repository=\"\" for a full name, or write the registry there." $image $repository) -}}
{{- end -}}
{{- if not $repository -}}
{{- if regexMatch "(@|:[^/]*$)" $image -}}
{{- if .Values.operator.version -}}
{{- fail (printf "operator.image is %s, which has a version, and operator.version is %s. Set one of them." $image (include "gpuward.text" .Values.operator.version)) -}}
{{- end -}}
{{- $version = "" -}}
{{- else if contains "/" $image -}}
{{- $repository = dir $image -}}
{{- $image = base $image -}}
{{- else -}}
{{- fail (printf "operator.repository is empty, and operator.image is %s, which is no full name. Set operator.repository, or write the image as registry.example/%s." $image $image) -}}
{{- end -}}
{{- end -}}
{{ dict "repository" $repository "image" $image "version" $version | toJson }}
{{- end -}}

{{/* A value as text, whatever YAML took it for: a whole number keeps its digits, where toString would write 1.2345678e+07. */}}
{{- define "gpuward.text" -}}
{{- $whole := kindIs "float64" . | ternary (eq (printf "%v" (floor .)) (printf "%v" .)) false -}}
{{ $whole | ternary (printf "%.0f" (. | float64)) (toString .) }}
{{- end -}}

{{/* A map of strings, such as labels. */}}
{{- define "gpuward.strings" -}}
{{- $strings := dict -}}
{{- range $key, $value := . -}}
{{- $_ := set $strings $key (include "gpuward.text" $value) -}}
{{- end -}}
{{ toYaml $strings }}
{{- end -}}

{{- define "gpuward.version" -}}
{{ .Values.operator.version | default .Chart.AppVersion | include "gpuward.text" }}
{{- end -}}

{{/* The version of NVIDIA's validator that the values have. NVIDIA's chart takes its own where they are told to have none. */}}
{{- define "gpuward.nvidiaVersion" -}}
v26.7.0
{{- end -}}

{{/*
Completes images in `values`, which is a copy. With operator.agents=gpuward the operator's image is in the place of NVIDIA's validator and
driver managers; otherwise a validator without a version gets one.
*/}}
{{- define "gpuward.completeImages" -}}
{{- $operator := .root.Values.operator -}}
{{- $own := include "gpuward.version" .root -}}
{{- $v := .values -}}
{{- if eq $operator.agents "gpuward" -}}
{{- $image := include "gpuward.ownImage" .root | fromJson -}}
{{- $_ := set $image "imagePullPolicy" $operator.imagePullPolicy -}}
{{- $_ := set $image "imagePullSecrets" $operator.imagePullSecrets -}}
{{- $parts := list $v.validator $v.nodeStatusExporter $v.driver.manager $v.vfioManager.driverManager $v.vgpuManager.driverManager -}}
{{- range $part := $parts -}}
{{- range $key, $value := $image -}}
{{- $_ := set $part $key $value -}}
{{- end -}}
{{- end -}}
{{- else -}}
{{- range $part := list $v.validator $v.nodeStatusExporter -}}
{{- if and $part.repository (not $part.version) -}}
{{- $isOwn := eq (base ($part.image | default "")) "gpuward" -}}
{{- $_ := set $part "version" ($isOwn | ternary $own (include "gpuward.nvidiaVersion" $)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the pods of the operator and of the chart's hooks have in common: the values of `root`, and `tolerations` besides theirs. */}}
{{- define "gpuward.podSpec" -}}
{{- $operator := .root.Values.operator -}}
{{- with $operator.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with $operator.nodeSelector }}
nodeSelector:
  {{- include "gpuward.strings" . | nindent 2 }}
{{- end }}
{{- with concat ($operator.tolerations | default list) (.tolerations | default list) }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- define "gpuward.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
{{- if not .Values.platform.openshift }}
runAsUser: 65532
{{- end }}
capabilities:
  drop: [ALL]
{{- end -}}

{{/* The fields of `from` named in `keys` that are not empty. Versions, labels and annotations are text, whatever YAML took them for. */}}
{{- define "gpuward.fields" -}}
{{- $from := .from | default dict -}}
{{- $fields := dict -}}
{{- range .keys -}}
{{- $key := . -}}
{{- with get $from $key -}}
{{- $value := . -}}
{{- if eq $key "version" -}}
{{- $value = include "gpuward.text" . -}}
{{- else if has $key (list "annotations" "labels") -}}
{{- $value = include "gpuward.strings" . | fromYaml -}}
{{- else if and (eq $key "manager") .version -}}
{{- $value = merge (dict "version" (include "gpuward.text" .version)) . -}}
{{- else if and (eq $key "serviceMonitor") .additionalLabels -}}
{{- $value = merge (dict "additionalLabels" (include "gpuward.strings" .additionalLabels | fromYaml)) . -}}
{{- end -}}
{{- $_ := set $fields $key $value -}}
{{- end -}}
{{- end -}}
{{- if $fields }}{{ toYaml $fields }}{{ end -}}
{{- end -}}

{{/* An operand of the ClusterPolicy: whether it is wanted, its image, what all of them may say, and the keys of `more`. */}}
{{- define "gpuward.operand" -}}
{{- $common := list "repository" "image" "version" "imagePullPolicy" "imagePullSecrets" "resources" "env" "args" "hostNetwork" -}}
{{- $from := .from | default dict -}}
{{- if not (kindIs "invalid" $from.enabled) }}
enabled: {{ $from.enabled }}
{{- end }}
{{ include "gpuward.fields" (dict "from" $from "keys" (concat $common (.more | default list))) }}
{{- end -}}

{{- define "gpuward.driverManager" -}}
{{ include "gpuward.fields" (dict "from" . "keys" (list "repository" "image" "version" "imagePullPolicy" "imagePullSecrets" "env")) }}
{{- end -}}

{{/* driver.upgradePolicy. Seconds are whole numbers, however large. A timeout that is null is left out: the CRD has its default, and 0 is for ever. */}}
{{- define "gpuward.upgradePolicy" -}}
{{- $wait := .waitForCompletion | default dict -}}
{{- $pods := .gpuPodDeletion | default dict -}}
{{- $drain := .drain | default dict -}}
autoUpgrade: {{ .autoUpgrade | default false }}
maxParallelUpgrades: {{ .maxParallelUpgrades | default 0 | int }}
maxUnavailable: {{ .maxUnavailable | default "25%" | include "gpuward.text" }}
waitForCompletion:
  timeoutSeconds: {{ $wait.timeoutSeconds | default 0 | int }}
  {{- with $wait.podSelector }}
  podSelector: {{ . | quote }}
  {{- end }}
podDeletion:
  force: {{ $pods.force | default false }}
  {{- if hasKey $pods "timeoutSeconds" }}
  timeoutSeconds: {{ $pods.timeoutSeconds | int }}
  {{- end }}
  deleteEmptyDir: {{ $pods.deleteEmptyDir | default false }}
drain:
  enable: {{ $drain.enable | default false }}
  force: {{ $drain.force | default false }}
  {{- with $drain.podSelector }}
  podSelector: {{ . | quote }}
  {{- end }}
  {{- if hasKey $drain "timeoutSeconds" }}
  timeoutSeconds: {{ $drain.timeoutSeconds | int }}
  {{- end }}
  deleteEmptyDir: {{ $drain.deleteEmptyDir | default false }}
{{- end -}}

{{/*
Labels of all operands. helm.sh/chart is part of their pod templates: what a ClusterPolicy in the cluster says stays,
so that an upgrade of the chart, or a move from NVIDIA's, restarts nothing.
*/}}
{{- define "gpuward.operandLabels" -}}
{{- $chart := .Chart.Name -}}
{{- $policy := dict -}}
{{- if .Capabilities.APIVersions.Has "nvidia.com/v1/ClusterPolicy" -}}
{{- $policy = lookup "nvidia.com/v1" "ClusterPolicy" "" "cluster-policy" | default dict -}}
{{- end -}}
{{- with dig "spec" "daemonsets" "labels" "helm.sh/chart" "" $policy -}}
{{- $chart = . -}}
{{- end -}}
{{- $labels := dict "helm.sh/chart" $chart "app.kubernetes.io/managed-by" (include "gpuward.name" .) -}}
{{ include "gpuward.strings" (merge (dict) (.Values.daemonsets.labels | default dict) $labels) }}
{{- end -}}

{{/* Refuse a value whose name the chart does not know, and say which one was probably meant. A schema can only say the first. */}}
{{- define "gpuward.checkNames" -}}
{{- $this := . -}}
{{- range $name, $value := .values -}}
{{- if not (hasKey $this.names $name) -}}
{{- include "gpuward.refuseName" (merge (dict "name" $name) $this) -}}
{{- end -}}
{{- $below := get $this.names $name -}}
{{- if and (kindIs "slice" $below) (kindIs "slice" $value) -}}
{{- range $i, $one := $value -}}
{{- if kindIs "map" $one -}}
{{- include "gpuward.checkNames" (dict "values" $one "names" (first $below) "path" (printf "%s%s[%d]." $this.path $name $i) "all" $this.all) -}}
{{- end -}}
{{- end -}}
{{- else if and (kindIs "map" $below) (kindIs "map" $value) -}}
{{- include "gpuward.checkNames" (dict "values" $value "names" $below "path" (printf "%s%s." $this.path $name) "all" $this.all) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "gpuward.refuseName" -}}
{{- $name := .name -}}
{{- $nearest := include "gpuward.nearest" (dict "name" .name "names" (keys .names | sortAlpha)) -}}
{{- $meant := "" -}}
{{- if $nearest }}{{ $meant = printf "%s%s" .path $nearest }}{{ end -}}
{{- if not .path -}}
{{- $sections := list -}}
{{- range $section, $below := .all -}}
{{- if kindIs "map" $below }}{{ if hasKey $below $name }}{{ $sections = append $sections $section }}{{ end }}{{ end -}}
{{- end -}}
{{- /* What many sections have was as likely meant of any of them, unless the operator's own is one. */ -}}
{{- if has "operator" $sections }}{{ $sections = list "operator" }}{{ end -}}
{{- if eq (len $sections) 1 }}{{ $meant = printf "%s.%s" (first $sections) $name }}{{ end -}}
{{- end -}}
{{- $ask := "" -}}
{{- if $meant }}{{ $ask = printf " Did you mean %s?" $meant }}{{ end -}}
{{- fail (printf "%s%s is not a value of this chart.%s (helm show values lists all.)" .path .name $ask) -}}
{{- end -}}

{{/*
The one of `names` that is most like `name`: it shares most pairs of letters, or its beginning and end, for its length, or has the same
letters in another order; nothing if all are too different.
*/}}
{{- define "gpuward.nearest" -}}
{{- $name := lower .name -}}
{{- $sorted := splitList "" $name | sortAlpha | join "" -}}
{{- $best := "" -}}
{{- $most := 399 -}}
{{- range $candidate := .names -}}
{{- $other := lower $candidate -}}
{{- $pairs := 0 -}}
{{- range $i := until (max 0 (sub (len $name) 1) | int) -}}
{{- if contains (substr $i (int (add $i 2)) $name) $other }}{{ $pairs = add $pairs 1 }}{{ end -}}
{{- end -}}
{{- $before := 0 -}}
{{- $after := 0 -}}
{{- $short := min (len $name) (len $other) | int -}}
{{- range $i := until $short -}}
{{- if and (eq (int $before) $i) (eq (substr $i (add1 $i | int) $name) (substr $i (add1 $i | int) $other)) }}{{ $before = add $before 1 }}{{ end -}}
{{- end -}}
{{- range $i := until (sub $short $before | int) -}}
{{- $fits := hasSuffix (substr (sub (len $name) (add1 $i) | int) (len $name) $name) $other -}}
{{- if and $fits (eq (int $after) $i) }}{{ $after = add $after 1 }}{{ end -}}
{{- end -}}
{{- $shared := max $pairs (add $before $after) -}}
{{- if eq $sorted (splitList "" $other | sortAlpha | join "") }}{{ $shared = len $name }}{{ end -}}
{{- $score := div (mul 2000 $shared) (add (len $name) (len $other)) -}}
{{- if gt $score $most }}{{ $most = $score }}{{ $best = $candidate }}{{ end -}}
{{- end -}}
{{ $best }}
{{- end -}}
