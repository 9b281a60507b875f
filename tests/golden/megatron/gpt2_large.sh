#!/bin/bash
# The run of gpt2_large.args as launch scripts of github.com/NVIDIA/Megatron-LM, examples/gpt3, are written (Apache-2.0).
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=${GPUS_PER_NODE:-1}
NNODES=1
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
CHECKPOINT_PATH=$1 #<Specify path>
SIZE=large
if [ "$SIZE" = "large" ]; then
    LAYERS=36
else
    LAYERS=12
fi
[ -z "$MASTER_PORT" ] && MASTER_PORT=6000

DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \
    --nnodes $NNODES --master_port $MASTER_PORT
"

GPT_ARGS=(
    --num-layers $LAYERS   # or 12
    --hidden-size 1280
    --num-attention-heads 20
    --seq-length 1024
    --max-position-embeddings "$((512 * 2))"
    --attention-backend unfused --vocab-size 50304 --ffn-hidden-size 3392
)

TRAINING_ARGS="--micro-batch-size 4 --fp16"
TRAINING_ARGS+=" --global-batch-size $((16 * WORLD_SIZE)) --swiglu
    --use-distributed-optimizer \
    --lr 0.00015"

run_cmd="torchrun $DISTRIBUTED_ARGS pretrain_gpt.py ${GPT_ARGS[@]} $TRAINING_ARGS --save $CHECKPOINT_PATH --split \"949,50,1\""
echo $run_cmd
eval $run_cmd 2>&1 | tee log.txt
