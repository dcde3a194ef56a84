from __future__ import annotations

from kubesandbox.shapes import BuiltInShape, SchemaShape


def test_built_in_lists_merge_by_their_key() -> None:
    spec = BuiltInShape("core.v1.Pod").field("spec")
    assert spec.field("containers").keys == ("name",)
    assert spec.field("containers").element().field("env").keys == ("name",)
    assert (spec.field("tolerations").keys, spec.field("tolerations").is_set) == ((), False)
    assert BuiltInShape("core.v1.Pod").field("metadata").field("finalizers").is_set
    assert BuiltInShape("apps.v1.DaemonSet").field("spec").field("selector").is_atomic
    assert BuiltInShape("core.v1.Pod").field("nothing").field("deeper").keys == ()


def test_custom_lists_say_what_they_are() -> None:
    shape = SchemaShape({"properties": {"a": {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                                              "items": {"properties": {"k": {"type": "string"}}}},
                                        "s": {"x-kubernetes-list-type": "set"}, "m": {"x-kubernetes-map-type": "atomic"}}})
    assert (shape.field("a").keys, shape.field("s").is_set, shape.field("m").is_atomic) == (("k",), True, True)
    assert shape.field("unknown").keys == ()
