"""A tf.data pipeline whose images are almost black: the classifier that gets them stays near chance.

Stop in the map function, which runs in TensorFlow's own threads, and look at what it is given:

    python -m tfdb examples/pipeline.py
    (tfdb) b examples/pipeline.py:31
    (tfdb) c
    (tfdb) pt image
"""

import keras
import numpy as np
import tensorflow as tf


def make_images(samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise with a bright bar, 8x8 bytes: horizontal is class 0, vertical class 1."""
    random = np.random.default_rng(5)
    images = random.integers(0, 96, (samples, 8, 8), dtype=np.uint8)
    labels = random.integers(0, 2, samples)
    for image, label, place in zip(images, labels, random.integers(0, 8, samples), strict=True):
        (image.T if label else image)[place] += 128
    return images, labels.astype("int64")


def decode(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.image.convert_image_dtype(image[..., tf.newaxis], tf.float32), label


def augment(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    image = tf.cast(image, tf.float32) / 255.0
    image = tf.image.stateless_random_flip_left_right(image, seed=(1, 2))
    return image, label


def make_dataset(images: np.ndarray, labels: np.ndarray) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    return dataset.map(decode).map(augment).batch(32)


def main() -> None:
    keras.utils.set_random_seed(5)
    layers = keras.layers
    model = keras.Sequential([layers.Conv2D(8, 3), layers.GlobalMaxPooling2D(), layers.Dense(2)])
    model.compile(
        optimizer=keras.optimizers.Adam(0.02),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    history = model.fit(make_dataset(*make_images(512)), epochs=5, shuffle=False, verbose=0)
    for epoch, (loss, accuracy) in enumerate(zip(history.history["loss"], history.history["accuracy"], strict=True)):
        print(f"epoch {epoch}  loss {loss:.3f}  accuracy {accuracy:.2f}")


if __name__ == "__main__":
    main()
