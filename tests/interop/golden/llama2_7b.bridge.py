# llama on 8 x h100_sxm, for Megatron-Bridge (0.7.0, commit 067f987d); made by zplan export megatron-bridge.
# tensor 2 x pipeline 2 x data 2 = 8 ranks, ZeRO 1, micro-batch 1, recompute none.
# zplan's estimates, for Megatron-LM (profile megatron-bridge): 11.4 s a step, at most 28.6 GB on a device.
#
#   source llama2_7b.py
#   torchrun ... llama2_7b.py
#
# What differs from the plan:
# - initial values: tables start with a deviation of 0.02, matrices that end a branch of a layer with 0.0025; in the
#   plan's model with 0.02 and 0.02.
# - learning rates come one step later: Megatron-LM's first step has rate 0.
# - seed 1 stands for 0, which Megatron-LM refuses; its random numbers are others anyway.

import torch
import torch.nn.functional as F
from megatron.bridge.models.gpt_provider import (
    GPTModelProvider,
)
from megatron.bridge.training.config import (
    TrainingConfig,
    ConfigContainer,
    ValidationConfig,
    OptimizerConfig,
    SchedulerConfig,
    DistributedDataParallelConfig,
    MockGPTDatasetConfig,
    TokenizerConfig,
    CheckpointConfig,
    LoggerConfig,
    RNGConfig,
    DistributedInitConfig,
)
from megatron.bridge.training.mixed_precision import (
    MixedPrecisionConfig,
)
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.pretrain import pretrain


def recipe() -> ConfigContainer:
    return ConfigContainer(
        # Megatron-LM requires it where tensors are split, before Blackwell
        env_vars={"CUDA_DEVICE_MAX_CONNECTIONS": 1},
        model=GPTModelProvider(
            tensor_model_parallel_size=2,
            pipeline_model_parallel_size=2,
            pipeline_model_parallel_layout="Et*16|t*16L",
            sequence_parallel=True,
            num_layers=32,
            hidden_size=4096,
            ffn_hidden_size=11008,
            num_attention_heads=32,
            seq_length=4096,
            position_embedding_type="rope",
            rotary_base=10000,
            normalization="RMSNorm",
            layernorm_epsilon=1e-05,
            activation_func=F.silu,
            gated_linear_unit=True,
            add_bias_linear=False,
            share_embeddings_and_output_weights=False,
            hidden_dropout=0,
            attention_dropout=0,
            init_method_std=0.02,
            vocab_size=32000,
            apply_rope_fusion=True,
            bias_activation_fusion=True,
            bias_dropout_fusion=True,
        ),
        train=TrainingConfig(
            micro_batch_size=1,
            global_batch_size=256,
            train_iters=10000,
        ),
        validation=ValidationConfig(
            eval_iters=0,
        ),
        optimizer=OptimizerConfig(
            use_distributed_optimizer=True,
            overlap_param_gather=True,
            optimizer="adam",
            adam_beta1=0.9,
            adam_beta2=0.95,
            adam_eps=1e-08,
            weight_decay=0.1,
            clip_grad=1,
            lr=0.0003,
            min_lr=3e-05,
        ),
        scheduler=SchedulerConfig(
            start_weight_decay=0.1,
            end_weight_decay=0.1,
            lr_decay_style="cosine",
            lr_decay_iters=10000,
            lr_warmup_iters=500,
        ),
        ddp=DistributedDataParallelConfig(
            use_distributed_optimizer=True,
            overlap_grad_reduce=True,
            overlap_param_gather=True,
            check_for_nan_in_grad=True,
        ),
        dataset=MockGPTDatasetConfig(
            seq_length=4096,
            random_seed=1,
            split="969, 30, 1",
            dataloader_type="single",
            reset_position_ids=False,
            reset_attention_mask=False,
            eod_mask_loss=False,
        ),
        tokenizer=TokenizerConfig(
            tokenizer_type="NullTokenizer",
            vocab_size=32000,
        ),
        checkpoint=CheckpointConfig(),
        logger=LoggerConfig(
            log_interval=1,
        ),
        rng=RNGConfig(
            seed=1,
        ),
        dist=DistributedInitConfig(
            use_tp_pp_dp_mapping=True,
        ),
        mixed_precision=MixedPrecisionConfig(
            bf16=True,
            params_dtype=torch.bfloat16,
            pipeline_dtype=torch.bfloat16,
            grad_reduce_in_fp32=False,
        ),
    )


if __name__ == "__main__":
    pretrain(recipe(), forward_step)
