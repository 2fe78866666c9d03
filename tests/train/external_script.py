"""A training script as people write them: transformers' Trainer, and not a word of the harness."""

from __future__ import annotations

import argparse
import tempfile

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.linear(x).tanh()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.block, self.last = nn.Linear(4, 16), Block(), nn.Linear(16, 2)

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        out = self.last(self.block(self.first(x)))
        return {"loss": (out - labels).square().mean(), "logits": out}


class Points(Dataset):
    def __init__(self) -> None:
        self.x = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": self.x[index], "labels": self.x[index, :2] * 2}


BACKENDS = {
    "ddp": {},
    "fsdp2": {"fsdp": True, "fsdp_config": {"version": 2, "transformer_layer_cls_to_wrap": ["Block"]}},
}
MODES = {"ddp": "trainer_ddp", "fsdp2": "trainer_fsdp2_native"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", required=True)
    parser.add_argument("--train-backend", choices=BACKENDS, required=True)
    parser.add_argument("--lie", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    print("resolved_mode=" + ("accelerate_fsdp2_plugin" if args.lie else MODES[args.train_backend]))
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        use_cpu=not torch.cuda.is_available(),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=12,
        learning_rate=1e-2,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **BACKENDS[args.train_backend],
    )
    Trainer(model=Net(), args=arguments, train_dataset=Points()).train()


if __name__ == "__main__":
    main()
