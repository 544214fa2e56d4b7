"""The Spanish verbs of the bundled corpus that are irregular, and where."""

from regard.data.text.grammar.morphology import SpanishVerb

_IRREGULAR = {
    verb.infinitive: verb
    for verb in (
        SpanishVerb(
            "ser",
            forms={
                "present": "soy eres es somos son",
                "preterite": "fui fuiste fue fuimos fueron",
                "imperfect": "era eras era éramos eran",
            },
        ),
        SpanishVerb("estar", strong="estuv", forms={"present": "estoy estás está estamos están"}),
        SpanishVerb("haber", strong="hub", future="habr", forms={"present": "he has ha hemos han"}),
        SpanishVerb(
            "ir",
            forms={
                "present": "voy vas va vamos van",
                "preterite": "fui fuiste fue fuimos fueron",
                "imperfect": "iba ibas iba íbamos iban",
            },
        ),
        SpanishVerb("tener", change="e>ie", first="tengo", strong="tuv", future="tendr"),
        SpanishVerb("poder", change="o>ue", strong="pud", future="podr"),
        SpanishVerb("querer", change="e>ie", strong="quis", future="querr"),
        SpanishVerb(
            "ver",
            first="veo",
            participle="visto",
            forms={
                "preterite": "vi viste vio vimos vieron",
                "imperfect": "veía veías veía veíamos veían",
            },
        ),
        SpanishVerb("dar", first="doy", forms={"preterite": "di diste dio dimos dieron"}),
        SpanishVerb("traer", first="traigo", strong="traj"),
        SpanishVerb("salir", first="salgo", future="saldr"),
        SpanishVerb("decir", change="e>i", first="digo", strong="dij", future="dir", participle="dicho"),
        SpanishVerb("saber", first="sé", strong="sup", future="sabr"),
        SpanishVerb("conocer", first="conozco"),
        SpanishVerb("ofrecer", first="ofrezco"),
        SpanishVerb("proteger", first="protejo"),
        SpanishVerb("escribir", participle="escrito"),
        SpanishVerb("abrir", participle="abierto"),
        SpanishVerb("romper", participle="roto"),
        SpanishVerb("dormir", change="o>ue"),
        SpanishVerb("pedir", change="e>i"),
        SpanishVerb("jugar", change="u>ue"),
        *(SpanishVerb(verb, change="e>ie") for verb in ("cerrar", "perder", "entender", "pensar")),
        *(SpanishVerb(verb, change="o>ue") for verb in ("encontrar", "recordar", "soñar", "mostrar")),
    )
}


def spanish_verb(infinitive: str) -> SpanishVerb:
    """The verb, with what is irregular in it."""
    return _IRREGULAR.get(infinitive) or SpanishVerb(infinitive)
