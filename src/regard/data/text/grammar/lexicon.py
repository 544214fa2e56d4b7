"""The words of the bundled corpus: English with its Spanish, and who can do what to whom."""

from dataclasses import dataclass

from regard.data.text.grammar.morphology import EnglishVerb, SpanishVerb, english_plural, spanish_plural, spanish_verb


@dataclass(frozen=True)
class Noun:
    """A noun in both languages. ``stressed_a``: takes *el* in the singular though feminine (el agua, las aguas)."""

    english: str
    english_plural: str
    spanish: str
    spanish_plural: str
    gender: str
    kind: str
    stressed_a: bool
    mass: bool


@dataclass(frozen=True)
class Adjective:
    """An adjective: the kinds of noun it fits, its verb "to be", and its short form where it stands before the noun.

    What has no degrees (colours, nations, *closed*) is not gradable, and never comes with *very*.
    """

    english: str
    spanish: str
    kinds: frozenset[str]
    copula: str
    before: str = ""

    @property
    def gradable(self) -> bool:
        """Whether *very* can stand before it."""
        return not (self.before or self.english in _ABSOLUTE_ADJECTIVES)


@dataclass(frozen=True)
class Verb:
    """A verb: the kinds of noun that it takes, the Spanish preposition before them, whether it can be progressive."""

    english: EnglishVerb
    spanish: SpanishVerb
    objects: tuple[str, ...] = ()
    preposition: str = ""
    stative: bool = False


_NOUNS = {
    "person": """
        boy niño m; girl niña f; man/men hombre m; woman/women mujer f; teacher maestro m; doctor médico m;
        student estudiante m; friend amigo m; neighbor vecino m; mother madre f; father padre m; brother hermano m;
        sister hermana f; uncle tío m; aunt tía f; grandfather abuelo m; grandmother abuela f; king rey/reyes m;
        queen reina f; nurse enfermera f; actor actor m; actress actriz f; waiter camarero m; lawyer abogado m;
        farmer granjero m; singer cantante m; soldier soldado m; judge juez m; thief/thieves ladrón m; baker panadero m;
        painter pintor m; princess princesa f; engineer ingeniero m; dentist dentista m; cousin primo m
    """,
    "animal": """
        dog perro m; cat gato m; horse caballo m; cow vaca f; bird pájaro m; duck pato m; rabbit conejo m; lion león m;
        bear oso m; wolf/wolves lobo m; mouse/mice ratón m; monkey mono m; frog rana f; snake serpiente f;
        turtle tortuga f; eagle águila f!; bee abeja f; goat cabra f; pig cerdo m; butterfly mariposa f
    """,
    "food": """
        apple manzana f; banana plátano m; egg huevo m; cake pastel m; cookie galleta f; tomato tomate m;
        potato papa f; carrot zanahoria f; onion cebolla f; pear pera f; strawberry fresa f; lemon limón m;
        salad ensalada f; soup sopa f; sausage salchicha f; bread pan m*; meat carne f*; rice arroz m*; cheese queso m*
    """,
    "drink": "water agua f!*; milk leche f*; coffee café m*; tea té m*; juice jugo m*; wine vino m*; beer cerveza f*",
    "text": """
        book libro m; letter carta f; newspaper periódico m; magazine revista f; poem poema m; story cuento m;
        message mensaje m; lesson lección f; novel novela f; report informe m
    """,
    "thing": """
        key llave f; pencil lápiz m; phone teléfono m; chair silla f; lamp lámpara f; clock reloj m;
        knife/knives cuchillo m; cup taza f; plate plato m; spoon cuchara f; bag bolsa f; basket cesta f; ball pelota f;
        toy juguete m; camera cámara f; computer computadora f; guitar guitarra f; map mapa m; flag bandera f;
        candle vela f; mirror espejo m; bottle botella f; gift regalo m; ring anillo m; suitcase maleta f
    """,
    "vehicle": """
        car coche m; truck camión m; bus autobús m; train tren m; boat barco m; plane avión m; bicycle bicicleta f
    """,
    "clothes": """
        shirt camisa f; dress vestido m; coat abrigo m; hat sombrero m; shoe zapato m; skirt falda f; jacket chaqueta f;
        sock calcetín m; glove guante m; scarf/scarves bufanda f
    """,
    "place": """
        house casa f; school escuela f; garden jardín m; park parque m; market mercado m; city ciudad f;
        village pueblo m; church iglesia f; hospital hospital m; hotel hotel m; museum museo m; library biblioteca f;
        store tienda f; kitchen cocina f; office oficina f; station estación f; castle castillo m; farm granja f;
        forest bosque m;
        theater teatro m; restaurant restaurante m; airport aeropuerto m; bank banco m; classroom aula f!
    """,
    "opening": "door puerta f; window ventana f; box caja f; drawer cajón m",
    "surface": "table mesa f; bed cama f; roof techo m; bridge puente m",
}

NAMES = tuple(
    (name, gender)
    for gender, names in (
        ("f", ("Ana", "Elena", "Laura", "Marta", "Rosa", "Sara", "Clara", "Lucía")),
        ("m", ("Carlos", "Pedro", "Miguel", "Diego", "Pablo", "Luis", "Andrés", "Mateo")),
    )
    for name in names
)
"""First names, which are the same in both languages, and their gender."""

_BEINGS = "person animal"
_OBJECTS = "text thing vehicle clothes place opening surface"

_COLOURS = ("red", "blue", "green", "yellow", "black", "white", "brown")
_ABSOLUTE_ADJECTIVES = frozenset(
    ("Spanish", "French", "German", "Mexican", "broken", "closed", "open", "delicious", *_COLOURS)
)
_ADJECTIVES = f"""
    tall alto ser: person; young joven ser: {_BEINGS}; happy feliz estar: {_BEINGS}; sad triste estar: {_BEINGS};
    tired cansado estar: {_BEINGS}; sick enfermo estar: {_BEINGS}; strong fuerte ser: {_BEINGS};
    rich rico ser: person; poor pobre ser: person; kind amable ser: person; intelligent inteligente ser: {_BEINGS};
    brave valiente ser: {_BEINGS}; lazy perezoso ser: {_BEINGS}; angry enojado estar: {_BEINGS};
    famous famoso ser: person place text; elegant elegante ser: person clothes place;
    Spanish español ser: person food text; French francés ser: person food text;
    German alemán ser: person vehicle text; Mexican mexicano ser: person food;
    big grande ser: animal food {_OBJECTS}; small pequeño ser: animal food {_OBJECTS}; new nuevo ser: {_OBJECTS};
    old viejo ser: {_BEINGS} {_OBJECTS}; beautiful hermoso ser: {_BEINGS} clothes place thing;
    ugly feo ser: animal clothes place thing; expensive caro ser: food drink clothes thing vehicle;
    cheap barato ser: food drink clothes thing vehicle; clean limpio estar: clothes thing place vehicle;
    dirty sucio estar: clothes thing place vehicle surface; broken roto estar: thing opening;
    heavy pesado ser: thing surface; fast rápido ser: animal vehicle; slow lento ser: animal vehicle;
    delicious delicioso ser: food drink; fresh fresco ser: food; cold frío estar: food drink;
    hot caliente estar: food drink; sweet dulce ser: food drink; modern moderno ser: place vehicle;
    interesting interesante ser: text place; boring aburrido ser: text; difficult difícil ser: text;
    easy fácil ser: text; important importante ser: person text place; strange extraño ser: {_BEINGS} thing text;
    dangerous peligroso ser: animal; closed cerrado estar: place opening; open abierto estar: place opening;
    red rojo ser: thing vehicle clothes opening; blue azul ser: thing vehicle clothes opening;
    green verde ser: thing vehicle clothes opening; yellow amarillo ser: thing vehicle clothes opening;
    black negro ser: animal thing vehicle clothes; white blanco ser: animal thing vehicle clothes opening;
    brown marrón ser: animal clothes thing; good bueno ser buen: person food text place;
    great grande ser gran: person text place
"""

# English forms : Spanish : what it takes. A "+" particle belongs to the English verb; "=" marks a stative verb, and a
# preposition before the kinds is what Spanish puts between.
_TRANSITIVE_VERBS = f"""
    see saw seen : ver= : {_BEINGS} {_OBJECTS}; buy bought bought : comprar : food drink text thing vehicle clothes;
    sell sold sold : vender : food drink text thing vehicle clothes; eat ate eaten : comer : food;
    drink drank drunk : beber : drink; read read read : leer : text; write wrote written : escribir : text;
    open opened opened : abrir : opening; close closed closed : cerrar : opening;
    clean cleaned cleaned : limpiar : thing clothes vehicle place opening;
    wash washed washed : lavar : clothes vehicle food; find found found : encontrar : {_BEINGS} thing text place;
    lose lost lost : perder : thing text clothes;
    need needed needed : necesitar= : person thing text vehicle clothes; know knew known : conocer= : person place;
    visit visited visited : visitar : person place; help helped helped : ayudar : person;
    call called called : llamar : person; invite invited invited : invitar : person;
    greet greeted greeted : saludar : person; remember remembered remembered : recordar= : person place text;
    forget forgot forgotten : olvidar : person thing; look+for looked looked : buscar : {_BEINGS} thing text;
    wait+for waited waited : esperar : person vehicle; listen+to listened listened : escuchar : person animal;
    bring brought brought : traer : food drink thing text; break broke broken : romper : thing opening;
    repair repaired repaired : reparar : vehicle thing surface;
    paint painted painted : pintar : place opening surface; cook cooked cooked : cocinar : food;
    prepare prepared prepared : preparar : food drink; understand understood understood : entender= : person text;
    draw drew drawn : dibujar : animal place thing; use used used : usar : thing vehicle;
    hide hid hidden : esconder : thing text; touch touched touched : tocar : animal thing;
    receive received received : recibir : text person; protect protected protected : proteger : {_BEINGS} place;
    watch watched watched : mirar : {_BEINGS} vehicle; ask+for asked asked : pedir : food drink thing text;
    hate hated hated : odiar= : food text place
"""

_GOVERNING_VERBS = f"""
    talk+to talked talked : hablar con : person; think+about thought thought : pensar en : person place;
    dream+about dreamed dreamed : soñar con : {_BEINGS} place; play+with played played : jugar con : animal person;
    arrive+at arrived arrived : llegar a : place; leave left left : salir de : place;
    enter entered entered : entrar en : place; return+to returned returned : regresar a : place;
    walk+to walked walked : caminar a : place
"""

_INTRANSITIVE_VERBS = """
    sleep slept slept : dormir :; run ran run : correr :; sing sang sung : cantar :; dance danced danced : bailar :;
    work worked worked : trabajar :; cry cried cried : llorar :; swim swam swum : nadar :;
    rest rested rested : descansar :; study studied studied : estudiar :; live lived lived : vivir= :
"""

_GIVING_VERBS = """
    give gave given : dar :; show showed shown : mostrar :; send sent sent : mandar :; lend lent lent : prestar :;
    sell sold sold : vender :; bring brought brought : traer :; offer offered offered : ofrecer :
"""


def _read_nouns() -> dict[str, tuple[Noun, ...]]:
    nouns = {}
    for kind, table in _NOUNS.items():
        rows = []
        for entry in table.split(";"):
            english, spanish, marks = entry.split()
            singular, _, plural = english.partition("/")
            uno, _, muchos = spanish.partition("/")
            forms = singular, plural or english_plural(singular), uno, muchos or spanish_plural(uno)
            rows.append(Noun(*forms, marks[0], kind, "!" in marks, "*" in marks))
        nouns[kind] = tuple(rows)
    return nouns


def _read_adjectives() -> tuple[Adjective, ...]:
    adjectives = []
    for entry in _ADJECTIVES.split(";"):
        words, _, kinds = entry.partition(":")
        english, spanish, copula, *before = words.split()
        adjectives.append(Adjective(english, spanish, frozenset(kinds.split()), copula, "".join(before)))
    return tuple(adjectives)


def _read_verbs(table: str) -> tuple[Verb, ...]:
    verbs = []
    for entry in table.strip().strip(";").split(";"):
        english, spanish, kinds = (part.strip() for part in entry.split(":"))
        base, past, participle = english.split()
        base, _, particle = base.partition("+")
        infinitive, _, preposition = spanish.partition(" ")
        bare = infinitive.removesuffix("=")
        source = EnglishVerb(base, past, participle, particle)
        verbs.append(Verb(source, spanish_verb(bare), tuple(kinds.split()), preposition, bare != infinitive))
    return tuple(verbs)


NOUNS = _read_nouns()
ADJECTIVES = _read_adjectives()
TRANSITIVE = _read_verbs(_TRANSITIVE_VERBS)
GOVERNING = _read_verbs(_GOVERNING_VERBS)
INTRANSITIVE = _read_verbs(_INTRANSITIVE_VERBS)
GIVING = _read_verbs(_GIVING_VERBS)
