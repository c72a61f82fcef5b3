# From a competition's files to a submission. `make` lists the targets.

# The only competition that is here, or the first one; the sample is named by whoever means it. (As podium chooses it.)
DATA   := $(if $(PODIUM_ROOT),$(PODIUM_ROOT)/)data
HERE   := $(filter-out sample,$(notdir $(patsubst %/,%,$(wildcard $(DATA)/raw/*/))))
PACKED := $(filter-out $(HERE) sample,$(patsubst %.zip,%,$(notdir $(wildcard $(DATA)/raw/*.zip))))
MEANT  := $(strip $(if $(filter-out data,$(MAKECMDGOALS)),$(HERE)) $(PACKED))
COMP   ?= $(if $(filter 1,$(words $(MEANT))),$(MEANT),boolart-image-classification)
VENV   ?= .venv
PYTHON ?= python3

# COMP may also be the address of the competition's page.
override COMP := $(firstword $(subst /, ,$(lastword $(subst /competitions/, ,$(COMP)))))

READY  := $(VENV)/.ready
DEV    := $(VENV)/.with-dev
SET_UP := $(PYTHON) src/set_up.py --venv '$(VENV)' $(if $(TORCH),--torch $(TORCH)) $(if $(CONSTRAINTS),--constraints $(CONSTRAINTS))
BIN    := $(VENV)/bin
PODIUM := PODIUM_CALLED_BY=make $(BIN)/podium
RAW    := $(DATA)/raw/$(COMP)
FOLDED := $(DATA)/prepared/$(COMP)/folds.csv

# An environment runs the code of one clone. A second one that shares it would run that code, or replace it.
CODE  := $(shell cat '$(VENV)'/lib/python3*/site-packages/__editable__.podium-*.pth 2>/dev/null)
OWNER := $(or $(shell head -n 1 '$(VENV)/.ready' 2>/dev/null),$(patsubst %/src,%,$(CODE)))
ifneq ($(and $(OWNER),$(filter-out help clean,$(MAKECMDGOALS))),)
ifneq ($(OWNER),$(CURDIR))
  $(error $(VENV) is the environment of $(OWNER), whose code it runs; name another one with VENV=, or delete it)
endif
endif

# Make ignores variables that it does not know, or that a target does not use: then a misspelt one changes nothing.
ALWAYS   := COMP VENV PYTHON TORCH CONSTRAINTS ARGS
TRAINING := MODEL FOLDS EPOCHS LR BATCH SIZE SEED SEEDS WEIGHTS NAME GPUS BUDGET
USED_BY_setup         := WITH
USED_BY_folds         := K CORRECTIONS
USED_BY_pretrain      := MODEL EPOCHS LR BATCH SIZE SEED NAME
USED_BY_train         := $(TRAINING) CORRECTIONS
USED_BY_kaggle-train  := $(TRAINING)
USED_BY_compete       := BUDGET EXCEPT
USED_BY_search        := MODEL BUDGET FOLDS NAME SEED WEIGHTS
USED_BY_submit        := RUNS EXCEPT NAME UPLOAD MESSAGE
USED_BY_match         := RUNS EXCEPT NAME
USED_BY_final         :=
USED_BY_compare       := RUNS EXCEPT MODELS $(if $(MODELS),$(filter-out MODEL,$(TRAINING)))
USED_BY_report        := RUNS EXCEPT
USED_BY_road          := EPOCHS
USED_BY_kaggle-bundle := RUNS EXCEPT UPLOAD
USED_BY_predict       := RUN IMAGES
USED_BY_explain       := RUN IMAGES
USED_BY_doctor        := MODEL
USED_BY_models        := PATTERN
USED_BY_bench         := MODEL
USED_BY_chaos         := KILLS
GIVEN   := $(foreach name,$(.VARIABLES),$(if $(findstring command line,$(origin $(name))),$(name)))
USED    := $(ALWAYS) $(sort $(foreach goal,$(or $(MAKECMDGOALS),help),$(USED_BY_$(goal))))
UNKNOWN := $(firstword $(filter-out $(USED) READY RAW PODIUM MAKE%,$(GIVEN)))
ifneq ($(UNKNOWN),)
  $(error no variable $(UNKNOWN) for make $(MAKECMDGOALS); $(shell $(PYTHON) -c 'import difflib, sys; \
    near = difflib.get_close_matches(sys.argv[1].upper(), sys.argv[2:], 1); \
    print(f"did you mean {near[0]}?" if near else "there are " + ", ".join(sys.argv[2:]))' $(UNKNOWN) $(USED)))
endif

# $(call flag,LR,lr) is `--lr 1e-4` if LR is 1e-4, else nothing.
flag        = $(if $($(1)),--$(2) $($(1)))
TRAIN_FLAGS = $(call flag,MODEL,model) $(call flag,FOLDS,folds) $(call flag,EPOCHS,epochs) $(call flag,LR,lr) \
  $(call flag,BATCH,batch-size) $(call flag,SIZE,image-size) $(call flag,SEED,seed) $(call flag,SEEDS,seeds) $(call flag,WEIGHTS,weights) \
  $(call flag,NAME,name) $(call flag,GPUS,processes) $(call flag,BUDGET,budget) \
  $(call flag,CORRECTIONS,corrections) $(ARGS)
# One file or folder, whose name may have spaces, or several names with spaces in between.
ONE_IMAGE   = '$(subst ','\'',$(IMAGES))'
ALL_IMAGES  = $(if $(shell [ -e $(ONE_IMAGE) ] && echo exists),$(ONE_IMAGE),$(IMAGES))
RUN_FLAGS   = $(call flag,RUNS,runs) $(call flag,EXCEPT,except)

.DEFAULT_GOAL := help
.SILENT: submit match final predict compare models  # their output may go to another program
.PHONY: help setup data audit folds models pretrain train compete search submit match final predict explain compare road doctor kaggle-train kaggle-bundle \
  demo bench notebook stories test test-all test-fast test-core measure-tests chaos sizes lint lock clean

.DEFAULT:
	@$(PYTHON) -c 'import difflib, re, sys; \
	  names = re.findall(r"(?m)^([a-z-]+):.*##", open(sys.argv[2]).read()); \
	  near = difflib.get_close_matches(sys.argv[1], names, 1); \
	  sys.exit(f"make: no target {sys.argv[1]}; " + (f"did you mean make {near[0]}?" if near else "make help lists them"))' \
	  $@ $(firstword $(MAKEFILE_LIST))

help:  ## show this list
	@echo 'usage: make TARGET [VARIABLE=...]    default: COMP=$(COMP)'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; \
	  do printf '  %-14s %s\n' "$$name" "$$text"; done

setup:  ## make the Python environment, in VENV=.venv  [WITH="onnx slurm" TORCH=auto|cpu|default CONSTRAINTS=constraints.txt]
	@$(SET_UP) $(if $(WITH),--with $(WITH))
	@echo 'next: make demo'

data: $(READY)  ## download and unpack the competition's files  [COMP= ARGS=--card]
	$(PODIUM) data -c $(COMP) $(ARGS)

audit: $(READY) | $(RAW)  ## check every image: bad files, duplicates, leaks  [COMP= ARGS=--suspects]
	$(PODIUM) audit -c $(COMP) $(ARGS)

folds: $(READY) | $(RAW)  ## split the training images into folds  [COMP= K= CORRECTIONS=FILE ARGS="--group patient"]
	$(PODIUM) folds -c $(COMP) $(strip $(call flag,K,k) $(call flag,CORRECTIONS,corrections) $(ARGS))

models: $(READY)  ## find a model: PATTERN="vit small"  [COMP= ARGS="--all"]
	$(PODIUM) models -c $(COMP) $(if $(PATTERN),'$(subst ','\'',$(PATTERN))') $(ARGS)

pretrain: $(READY) | $(RAW)  ## learn features from all images, without labels: MODEL=  [COMP= EPOCHS= LR= BATCH= SIZE= SEED= NAME= ARGS=]
	$(PODIUM) pretrain -c $(COMP) $(strip $(call flag,MODEL,model) $(call flag,EPOCHS,epochs) $(call flag,LR,lr) \
	  $(call flag,BATCH,batch-size) $(call flag,SIZE,image-size) $(call flag,SEED,seed) $(call flag,NAME,name) $(ARGS))

train: $(READY) | $(if $(MODEL)$(findstring --model,$(ARGS))$(findstring --from,$(ARGS)),$(FOLDED))  ## train models: MODEL="a b"  [COMP= FOLDS=0-2 EPOCHS= LR= BATCH= SIZE= SEED= SEEDS=0-4 WEIGHTS= NAME= GPUS= BUDGET=8h CORRECTIONS=FILE ARGS="--mix 0"]
	$(PODIUM) train -c $(COMP) $(strip $(TRAIN_FLAGS))

compete: $(VENV)/.with-weights | $(RAW)  ## make the best submission that a time allows: BUDGET=2h  [COMP= EXCEPT="a b" ARGS="--on ray"]
	$(PODIUM) compete -c $(COMP) $(strip $(call flag,BUDGET,budget) $(call flag,EXCEPT,except) $(ARGS))

search: $(VENV)/.with-search | $(if $(MODEL)$(findstring --model,$(ARGS)),$(FOLDED))  ## search the options of models: MODEL="a b"  [COMP= BUDGET=4h FOLDS= NAME= SEED= WEIGHTS= ARGS="--on ray --at-once 2"]
	$(PODIUM) search -c $(COMP) $(strip $(call flag,MODEL,model) $(call flag,BUDGET,budget) $(call flag,FOLDS,folds) \
	  $(call flag,NAME,name) $(call flag,SEED,seed) $(call flag,WEIGHTS,weights) $(ARGS))

submit: override export MESSAGE := $(value MESSAGE)
submit: $(READY)  ## predict the test images, write the submission  [COMP= RUNS="a b" EXCEPT="a b" NAME= UPLOAD=1 MESSAGE= ARGS=]
	$(PODIUM) submit -c $(COMP) $(RUN_FLAGS) $(call flag,NAME,name) $(if $(UPLOAD),--upload) \
	  $(if $(MESSAGE),--message="$$MESSAGE") $(ARGS)

match: $(READY)  ## answer pairs of images by their similarity  [COMP= RUNS="a b" EXCEPT="a b" NAME= ARGS=]
	$(PODIUM) match -c $(COMP) $(strip $(RUN_FLAGS) $(call flag,NAME,name) $(ARGS))

final: $(READY)  ## propose which two submissions to choose before the competition ends  [COMP= ARGS=--public-share=0.3]
	$(PODIUM) final -c $(COMP) $(ARGS)

predict: $(READY)  ## predict images of your own: RUN=, a run or a CSV, IMAGES="a.jpg folder"  [COMP= ARGS=--csv]
	$(if $(and $(RUN),$(IMAGES)),,$(error make predict needs RUN=, a run or a CSV, and IMAGES="files or folders"))
	$(PODIUM) predict -c $(COMP) $(RUN) $(ALL_IMAGES) $(ARGS)

explain: $(READY)  ## draw what a run's model looks at and has learned: RUN="a b"  [COMP= IMAGES="id file" ARGS="--what grad_cam"]
	$(if $(RUN),,$(error make explain needs RUN=, one or more finished runs))
	$(PODIUM) explain -c $(COMP) $(RUN) $(if $(IMAGES),--images $(ALL_IMAGES)) $(ARGS)

compare: $(READY) | $(if $(MODELS),$(FOLDED))  ## compare runs; MODELS="a b": train these with one recipe first  [COMP= RUNS="a b" EXCEPT="a b" FOLDS= EPOCHS= ARGS=--csv]
	$(PODIUM) $(if $(MODELS),train -c $(COMP) --model $(MODELS) --one-recipe $(strip $(TRAIN_FLAGS)),compare -c $(COMP) $(strip $(RUN_FLAGS) $(ARGS)))

report: $(READY)  ## write pages that show the runs in a browser: curves, confusions, mistakes, costs  [COMP= RUNS="a b" EXCEPT="a b"]
	$(PODIUM) report -c $(COMP) $(RUN_FLAGS)

road: $(READY)  ## train the steps from ResNet-50 to ConvNeXt on the sample, and compare them  [EPOCHS=10 ARGS=]
	$(PODIUM) sample
	$(PODIUM) folds -c sample
	$(PODIUM) train -c sample --model 'road_*_nano' --weights none --folds 0 --one-recipe --epochs $(or $(EPOCHS),10) $(ARGS)

kaggle-train: $(READY)  ## train on Kaggle's own GPUs: MODEL=, or compete there: BUDGET=8h  [COMP= FOLDS= EPOCHS= and so on, as for train]
	$(PODIUM) kaggle-train -c $(COMP) $(strip $(TRAIN_FLAGS))

kaggle-bundle: $(READY)  ## pack models, code and notebook for a competition without a network  [COMP= RUNS="a b" EXCEPT="a b" UPLOAD=1]
	$(PODIUM) kaggle-bundle -c $(COMP) $(RUN_FLAGS) $(if $(UPLOAD),--upload)

doctor: $(READY)  ## check packages, disk, GPU, weights, Kaggle's terms and data  [COMP= MODEL="a b"]
	$(PODIUM) doctor -c $(COMP) $(call flag,MODEL,model)

demo: $(READY)  ## go the whole way on handwritten digits, in a minute, without a network or a GPU
	$(PODIUM) demo

bench: $(READY) | $(RAW)  ## measure training, compared with a bare training loop  [COMP= MODEL="a b" ARGS=]
	$(PODIUM) bench -c $(COMP) $(call flag,MODEL,model) $(ARGS)

notebook: $(VENV)/.with-notebooks  ## open the notebooks in Jupyter
	$(BIN)/jupyter lab notebooks

stories: $(VENV)/.with-notebooks  ## run the notebooks on the digits, write what they show as pages: docs/stories/
	$(BIN)/python docs/make_stories.py

test: $(DEV)  ## run the tests: two at a time, then those that need the machine alone
	$(BIN)/pytest -n 2 --dist worksteal -m "not alone and not all"
	$(BIN)/pytest -m alone $$(grep -rl "mark[.]alone" tests)

test-all: $(DEV)  ## run the tests, and their second rounds, many seeds and many forms; before a release
	PODIUM_TEST_ALL=1 $(BIN)/pytest -n 2 --dist worksteal -m "not alone"
	$(BIN)/pytest -m alone $$(grep -rl "mark[.]alone" tests)

test-fast: $(DEV)  ## run the tests that take a tenth of a second at most: in a minute
	$(BIN)/pytest -n 2 -m "not slow and not alone and not all"

test-core: $(DEV)  ## run the tests of the core where there is no annex
	$(BIN)/python tests/core_alone.py -n 2 --dist worksteal -m "not alone and not all and not annex"

measure-tests: $(DEV)  ## run the tests, and write down which are too slow for test-fast
	$(BIN)/pytest -n 2 --dist worksteal -m "not alone" --measure

chaos: $(DEV)  ## kill training at random moments, compare the results to the bit  [KILLS=25]
	PYTHONPATH=tests $(BIN)/python tests/chaos.py $(KILLS)

sizes: $(DEV)  ## print how large the parts of the code are; nothing fails by a size
	$(BIN)/python -m benchmarks.house

lint: $(DEV)  ## check style, types and which room imports which
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

lock: $(READY)  ## write the newest versions of all packages that fit into constraints.txt
	@$(SET_UP) --lock

clean:  ## delete caches; keeps data, runs and submissions
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis build/core
	find $(wildcard src tests benchmarks) -name __pycache__ -exec rm -rf {} +

# Files that the targets above depend on.

$(READY): pyproject.toml
	@$(SET_UP)

$(VENV)/.with-%: pyproject.toml
	@$(SET_UP) --with $*

# Commands that another one needs first do not say what comes next.
$(RAW): | $(READY)
	@PODIUM_GOES_ON=1 $(PODIUM) data -c $(COMP)

$(FOLDED): | $(READY) $(RAW)
	@PODIUM_GOES_ON=1 $(PODIUM) folds -c $(COMP) $(call flag,CORRECTIONS,corrections)
