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


# What radiologists and laboratory doctors write: short, half Latin, drugs and abbreviations.
CLINICAL = """
HbA1c?
K+ ok?
CT abdomen normal?
Troponin I elevated, NSTEMI?
Status post appendectomy?
Ductal carcinoma in situ?
Amoxicillin 500 mg per os tid?
Metformin contraindicated?
Rule out pneumothorax
Pleural effusion bilateral?
Lobar pneumonia vs atelectasis?
CT thorax: nodule?
Portal venous phase?
Hepatic steatosis?
Renal insufficiency acute?
Creatinine clearance?
Glomerulonephritis?
MRI lumbar spine L4/L5 disc?
Diabetes mellitus type 2?
Diabetes insipidus?
Angina pectoris?
Cor pulmonale?
Pancreatitis acuta?
Ulcus cruris venosum?
Herpes zoster ophthalmicus?
Staphylococcus aureus bacteremia?
Clostridium difficile colitis?
Escherichia coli ESBL?
Candida albicans?
Vena cava superior thrombosis?
Arteria mesenterica superior?
Foramen ovale patent?
Foetor ex ore?
Ad libitum intake?
Pro re nata morphine?
Post partum hemorrhage?
In vitro susceptibility?
In vivo half-life?
Per rectum bleeding?
Nil per os since midnight
Sine die?
Stat CBC, BMP, lipase
Na 128, K 6.1, Cl 90?
INR 4.2 on warfarin, bleed?
ANA titer 1:640?
Anti-CCP positive, RA?
Omeprazole vs pantoprazole?
Ceftriaxone 2 g IV q24h?
Levofloxacin and QT prolongation?
Furosemide iv dose?
Enoxaparin prophylaxis dose in CKD?
Vancomycin trough 22?
Ibuprofen allergy?
Aspirin plus clopidogrel?
Digoxin toxicity?
Prednisolone taper?
TSH 0.01, FT4 high: Graves?
D-dimer 3.2, PE?
BNP normal?
Anaemia cause?
Hyperkalemia treatment?
Hyponatraemia, SIADH?
Interpret LFTs
Compare with prior
Fracture?
Impression?
Differential?
Any contraindication to contrast?
eGFR 28, gadolinium safe?
Is it malignant?
Normal variant?
T2 hyperintense lesion right frontal lobe?
Lesion liver segment VII?
Subdural hematoma, midline shift?
Aorta abdominalis 5.6 cm
BI-RADS 4?
PI-RADS 5 lesion, biopsy?
Calcium total 2.7 mmol/l, PTH 90
Appendix dilated 9 mm, appendicolith
Cholelithiasis, cholecystitis?
Ileus or subileus?
Sepsis, lactate 4?
Ferritin 12 Hb 90
Iron deficiency anemia?
Pt. febrile, CRP 210
Meningitis? LP results ok?
CSF protein 1.2 g/l
Nodule RUL 8 mm spiculated
Hernia inguinalis?
Thrombus in vena portae?
Stenosis arteria carotis interna 70%?
Carcinoma ventriculi?
Tumor marker CA 19-9 elevated
Paracetamol max dose?
Hb drop post op
Lymphoma non-Hodgkin stage?
Quo vadis?
Dr. Müller: is the sodium ok?
Señora García has K 5.9, treat?
Crohn's or ulcerative colitis?
Guillain-Barré syndrome?
Sjögren antibodies positive?
Ménière's disease?
Café-au-lait spots?
Raynaud phenomenon?
Salmonella typhi titer?
Placenta praevia totalis?
Fetus in utero viable?
Kalium low?
Natrium 125?
Hallux valgus angle?
Os scaphoideum fracture?
Musculus psoas abscess?
Ligamentum flavum hypertrophy?
Bursa subacromialis fluid?
Meniscus medialis tear?
Sinus maxillaris opacification?
Corpus callosum agenesis?
Ramus mandibulae fracture?
Simvastatin atorvastatin rosuvastatin?
Insulin glargine 20 IE sc?
Morphine sulfate 10 mg im?
Carbamazepine lamotrigine interaction?
Isoniazid rifampicin ethambutol pyrazinamide
Pneumonia lobaris dextra?
Cave: penicillin
Mb. Crohn active?
Troponina?
Ok?
Why high?
Urea creatinine ratio?
Liver enzymes high, why?
Lab normal?
Normal?
ECG sinus tachycardia
Echo EF 35
CT brain
MRI brain
X-ray thorax
Sono abdomen
Please comment
Further workup?
Molluscum contagiosum?
Is it molluscum contagiosum?
Tinnitus aurium, luxatio humeri?
Musculus trapezius on MRI?
Metoprolol 25 mg bis in die ok?
Ter in die on MRI?
Locus minoris resistentiae?
Lupus erythematosus, pruritus ani?
Sinusitis maxillaris vs potassium chloride?
Sertraline citalopram escitalopram suspected?
""".strip().splitlines()


@pytest.mark.parametrize("question", CLINICAL)
def test_a_short_clinical_question_is_never_refused(english, question):
    assert english.knows(question)


FOREIGN = """
Warum ist der Blutzucker hoch?
Welche Werte sind auffällig?
Wie hoch ist das Kalium?
Was bedeutet dieser Befund?
Quelles valeurs sont anormales ?
Pourquoi le potassium est-il élevé ?
Est-ce que c'est normal ?
¿Por qué está alta la glucosa?
Perché la glicemia è alta?
Quais valores estão fora do normal?
血糖为什么高？
这个结果正常吗？
哪些指标异常？
血糖値が高いのはなぜですか？
この結果は正常ですか
Почему повышен калий?
Какие показатели не в норме?
لماذا ارتفع السكر؟
هل هذه النتيجة طبيعية؟
혈당이 왜 높나요?
क्या यह सामान्य है?
Γιατί είναι υψηλό το σάκχαρο;
מדוע הסוכר גבוה?
Neden kan şekeri bu kadar yüksek?
Dlaczego poziom glukozy jest wysoki?
Waarom is de bloedsuiker zo hoog?
Tại sao đường huyết cao?
ทำไมน้ำตาลในเลือดสูง
Miért magas a vércukor?
Varför är blodsockret högt?
""".strip().splitlines()


@pytest.mark.parametrize("question", FOREIGN)
def test_a_whole_question_in_another_language_is_refused(english, question):
    assert not english.knows(question)
