"""The words of a calculation that is drawn, in English and Chinese."""

import functools
import re

CHINESE = {
    "input": "输入", "query": "查询", "key": "键", "value": "值", "scores": "分数", "scaled": "缩放后",
    "capped": "限幅后", "biased": "加偏置后", "masked": "掩蔽后", "weights": "权重", "output": "输出", "sum": "和",
    "concatenated": "拼接", "projected": "投影", "state and context": "状态与上下文", "decoder output": "解码器输出",
    "[state; context]": "[状态; 上下文]", "query\n· keyᵀ": "查询\n· 键ᵀ", "weights\n× value": "权重\n× 值",
    "query ×": "查询 ×", "key ×": "键 ×", "query + key": "查询 + 键", "query · Wᵀ": "查询 · Wᵀ",
    "cos(query, key)": "cos(查询, 键)", "[query; key] ×": "[查询; 键] ×", "distance(query, key)": "距离(查询, 键)",
    "score(query, key)": "分数(查询, 键)", "+ bias": "+ 偏置", "+ mask": "+ 掩码", "with all heads": "与所有头拼接",
    "with the state": "与状态拼接", "a row for each word": "每个词一行", "what asks": "谁在发问",
    "what is looked at": "谁被看", "what is mixed": "混合什么", "how well they match": "有多相配",
    "who looks at whom": "谁看谁", "the mixed values": "混合后的值",
    "a row for each position of a key": "键的每个位置一行", "of the score": "评分函数的",
    "of head {head}": "第 {head} 头的", "{note}, projected by the score": "{note}，经评分函数投影",
    "of the tanh layer": "tanh 层的", "a query has {size} numbers": "一个查询有 {size} 个数",
    "of {query} with each key": "{query} 与每个键", "how much each unit counts": "每个单元的分量",
    "mixes the heads": "混合各头", "asks: {name}": "发问：{name}", "looked at: {name}": "被看：{name}",
    "numbers of each matrix": "每个矩阵的数", "max": "最大", "blank: zero": "空白：零",
    "hatched: masked": "斜线：被掩蔽", "crossed: NaN": "叉线：NaN",
    "“{asks}” gives {percent} of its attention to “{looked_at}”": "“{asks}”把 {percent} 的注意力给了“{looked_at}”",
    "“{asks}” gives “{looked_at}” the weight {weight}": "“{asks}”给“{looked_at}”的权重是 {weight}",
    "output of {asks}, first number = {sum}: weights × first column of value":
        "{asks} 的输出，第一个数 = {sum}：权重 × 值的第一列",
    "the heads' outputs side by side": "各头输出并列", "the output, projected": "投影后的输出",
    "≈: the printed numbers are rounded": "≈：所印的数经过舍入",
    "{asks} · row {key} of W": "{asks} · W 的第 {key} 行",
    "what it is compared with": "与什么比较", "each query compared with each key": "每个查询与每个键比较",
    "after the score's cap or function": "经评分函数限幅或变换后", "−∞ where the mask forbids": "掩码禁止处为 −∞",
    "normalized over the keys": "在键上归一化", "weight × value, for each query and key": "权重 × 值，对每个查询与键",
    "sum of the weighted values": "加权值之和", "weighted values": "加权值",
    "what goes in, a row each": "输入，每行一个", "what goes in": "输入",
    "what asks, projected by the score (W q)": "谁在发问，经评分函数投影（W q）",
    "what it is compared with, projected (U k)": "与什么比较，经投影（U k）", "weights of the score": "评分函数的权重",
    "a row for each unit of the tanh layer": "tanh 层的每个单元一行",
    "added to each weighted sum of units": "加到各单元的加权和上", "unit": "单元",
    "tanh of each sum": "每个和的 tanh", "query + key, unit by unit": "查询 + 键，逐单元", "unit weights": "单元权重",
    "unit bias": "单元偏置", "query input": "查询输入", "key input": "键输入", "value input": "值输入", "state": "状态",
    "context": "上下文", "scale": "缩放系数", "bias": "偏置", "weight": "权重",
    "too many to write the numbers": "太多，不写出数值",
    "from {low} to {high}": "从 {low} 到 {high}", "none is finite": "没有有限的数", "empty": "空", "head": "头",
    "batch row": "批次行", "for each query and key": "对每个查询与键", "of each": "各取", "score": "评分函数",
    "with a sink": "带汇", "projection": "投影", "… {count}{space}more": "其余{space}{count} 个",
}  # fmt: skip
"""What a flow says in Chinese, by its English words."""


def say(text: str, language: str, /, **values: object) -> str:
    """Returns a text of a flow in a language, with its places filled in."""
    chosen = CHINESE.get(text, text) if language == "zh" else text
    return chosen.format(**values) if values else chosen


def say_words(text: str, language: str) -> str:
    """Returns a name or a note of a step in a language: a text of `CHINESE`, else each of the texts of it in turn."""
    if language != "zh" or text in CHINESE:
        return say(text, language)
    return _known().sub(lambda known: CHINESE[known[0]], text)


@functools.cache
def _known() -> re.Pattern[str]:
    """Returns what finds the texts of `CHINESE` within another, the longest first, but not within a name."""
    texts = sorted((text for text in CHINESE if re.fullmatch("[a-z ]+", text)), key=len, reverse=True)
    return re.compile(rf"(?<![\w.])(?:{'|'.join(texts)})(?![\w.])")
