"""Questions in a language the model does not know are told from those with foreign terms."""

import pytest

from engine.language import LanguageCheck


@pytest.fixture(scope="module")
def english():
    return LanguageCheck(("en",))


@pytest.mark.parametrize(
    "question",
    [
        "Which lab values are out of range?",
        "Why?",
        "Sodium?",
        "HbA1c 7.2 %, WBC 12.3 x10^9/L, CRP 45 mg/L: infection?",
        "What is 糖化血红蛋白?",
        "Is 血糖 high?",
        "β-blocker or 5 µg of α-agonist?",
        "metformin dose?",
        "Interpret ALT AST GGT",
        "12.3",
        "",
        "naïve café patient, is it normal?",
    ],
)
def test_english_questions_are_known_whatever_terms_they_quote(english, question):
    assert english.knows(question)


@pytest.mark.parametrize(
    "question",
    [
        "血糖为什么升高？",
        "HbA1c偏高吗",
        "Почему глюкоза высокая?",
        "なぜ血糖が高いのですか",
        "혈당이 왜 높습니까?",
        "لماذا ارتفع السكر؟",
        "Warum ist der Blutzucker hoch?",
        "Quelles valeurs sont hors norme ?",
        "¿Qué valores están fuera de rango?",
    ],
)
def test_other_languages_are_not_taken_for_english(english, question):
    assert not english.knows(question)


def test_a_model_that_knows_chinese_and_english_is_asked_in_both():
    both = LanguageCheck(("zh", "en"))
    assert both.knows("血糖为什么升高？")
    assert both.knows("Why is the glucose high today?")
    assert not both.knows("Warum ist der Blutzucker hoch?")
