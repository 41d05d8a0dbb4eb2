"""Programs with a lost gradient -> `watch none` names the line and the op of the cut; sound programs are left alone.

The line at fault in each program ends in `#!`, followed by the op that the report must name, if any.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tfdb import errors, nonegrads, screens, tapes
from tfdb.report import Report
from tfdb.watching import Watching

HEAD = "import keras\nimport numpy as np\nimport tensorflow as tf\n\n"

LOST = {
    "computed_before_the_tape_and_held_by_a_function": """
w = tf.Variable([1., 2., 3.])
scaled = w * 2.  #! Mul
@tf.function
def loss_of(x):
    return tf.reduce_sum(scaled * x)
with tf.GradientTape() as tape:
    loss = loss_of(tf.ones([3]))
tape.gradient(loss, w)
""",
    "a_variable_added_to_is_reduced_itself": """
w = tf.Variable([1., 2.])
kept = tf.Variable([0., 0.], trainable=False)
with tf.GradientTape() as tape:
    kept.assign_add(w ** 2)  #! AssignAddVariableOp
    loss = tf.reduce_sum(kept)
tape.gradient(loss, w)
""",
    "how_often_a_loop_runs": """
w = tf.Variable(2.)
@tf.function
def step():
    with tf.GradientTape() as tape:
        count = tf.cast(w * 2., tf.int32)  #! Cast
        total = tf.constant(0.)
        for i in tf.range(count):
            total += tf.cast(i, tf.float32)
    return tape.gradient(total, w)
step()
""",
    "a_list_of_integers_made_in_a_loop": """
w = tf.Variable([1.5, 2.5, 3.5])
@tf.function
def step():
    with tf.GradientTape() as tape:
        y = tf.map_fn(lambda v: tf.cast(v, tf.int32), w, fn_output_signature=tf.int32)  #! Cast
        loss = tf.reduce_sum(tf.cast(y, tf.float32))
    return tape.gradient(loss, w)
step()
""",
    "numpy_in_a_function_that_has_returned": """
w = tf.Variable([[1.], [2.]])
def forward(x):
    z = x @ w + 1.
    z = np.maximum(z, 0.)  #!
    return tf.convert_to_tensor(z)
with tf.GradientTape() as tape:
    loss = tf.reduce_mean(forward(tf.ones([3, 2])) ** 2)
tape.gradient(loss, [w])
""",
    "numpy_behind_a_layer_in_a_method": """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.d = keras.layers.Dense(3); self.e = keras.layers.Dense(1)
    def features(self, x):
        h = self.d(x)
        scaled = h * 2.
        return np.asarray(scaled)  #!
    def call(self, x):
        return self.e(self.features(x))
net = Net(); net(tf.ones([2, 3]))
with tf.GradientTape() as tape:
    loss = tf.reduce_mean(net(tf.ones([2, 3])) ** 2)
tape.gradient(loss, net.d.trainable_variables)
""",
    "numpy_under_the_name_of_the_tensor": """
w = tf.Variable([[1.], [2.]])
with tf.GradientTape() as tape:
    z = tf.matmul(tf.ones([4, 2]), w)
    z = np.tanh(z)  #!
    count = np.prod(z.shape)
    loss = tf.reduce_sum(z) / count
tape.gradient(loss, w)
""",
    "slice_assign": """
w = tf.Variable([1., 2.])
kept = tf.Variable(tf.zeros([4]), trainable=False)
with tf.GradientTape() as tape:
    kept[1:3].assign(w * 2.)  #! ResourceStridedSliceAssign
    loss = tf.reduce_sum(kept ** 2)
g = tape.gradient(loss, w)
""",
    "scatter_into_a_variable": """
w = tf.Variable([1., 2.])
kept = tf.Variable(tf.zeros([4]), trainable=False)
@tf.function
def step():
    with tf.GradientTape() as tape:
        kept.scatter_nd_add([[0], [3]], w * 2.)  #! ResourceScatterNdAdd
        loss = tf.reduce_sum(kept ** 2)
    return tape.gradient(loss, w)
step()
""",
    "the_call_is_before_the_tape": """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = keras.layers.Dense(1)
    def call(self, x):
        return self.head(x)
    def train_step(self, data):
        x, y = data
        guess = self(x, training=True)  #!
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((y - guess) ** 2)
        g = tape.gradient(loss, self.trainable_variables)
        return {"loss": loss}
m = Net()
m.compile("sgd")
m.fit(np.ones((4, 3), "float32"), np.ones((4, 1), "float32"), verbose=0)
""",
    "poisson_latent": """
enc = keras.layers.Dense(2); dec = keras.layers.Dense(3)
x = tf.random.normal([4, 3]); enc(x); dec(tf.zeros([4, 2]))
with tf.GradientTape() as tape:
    z = tf.random.stateless_poisson([4, 2], [1, 2], tf.exp(enc(x)), tf.float32)  #! StatelessRandomPoisson
    loss = tf.reduce_mean((dec(z) - x) ** 2)
g = tape.gradient(loss, enc.trainable_variables + dec.trainable_variables)
""",
    "dataset_detour": """
w = tf.Variable([[1., 2.]])
x = tf.ones([6, 1])
with tf.GradientTape() as tape:
    h = x @ w
    ds = tf.data.Dataset.from_tensor_slices(h).batch(3)  #! TensorSliceDataset
    loss = tf.constant(0.)
    for b in ds:
        loss += tf.reduce_sum(b ** 2)
g = tape.gradient(loss, w)
""",
    "watched_too_late": """
x = tf.constant([1., 2.])
with tf.GradientTape() as tape:
    y = x * x  #! Mul
    tape.watch(x)
    loss = tf.reduce_sum(y)
g = tape.gradient(loss, x)
""",
    "second_derivative_of_something_linear": """
w = tf.Variable([1., 2.])
with tf.GradientTape() as outer:
    with tf.GradientTape() as inner:
        loss = tf.reduce_sum(3. * w)
    g = inner.gradient(loss, w)
h = outer.jacobian(g, w)  #!
""",
    "second_derivative_taken_outside": """
w = tf.Variable(2.)
with tf.GradientTape() as outer:
    with tf.GradientTape() as inner:
        loss = w ** 3
g = inner.gradient(loss, w)  #! Pow
h = outer.gradient(g, w)
""",
    "metric_as_loss_eagerly": """
m = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
metric = keras.metrics.MeanSquaredError()
x = np.ones((4, 3), "float32")
with tf.GradientTape() as tape:
    p = m(x)
    metric.update_state(np.zeros((4, 1)), p)  #! AssignVariableOp
    loss = metric.result()
g = tape.gradient(loss, m.trainable_variables)
""",
    "py_function_eagerly": """
w = tf.Variable([1., 2.])
def slow(a):
    return tf.constant(a.numpy() ** 2)
with tf.GradientTape() as tape:
    z = w * 2.
    q = tf.py_function(slow, [z], tf.float32)  #! EagerPyFunc
    loss = tf.reduce_sum(q)
g = tape.gradient(loss, w)
""",
    "sort_positions": """
m = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
@tf.function
def step(x):
    with tf.GradientTape() as tape:
        order = tf.argsort(m(x), axis=1)  #! TopKV2
        loss = tf.reduce_mean(tf.cast(order, tf.float32) * 0.1)
    return tape.gradient(loss, m.trainable_variables)
step(tf.random.normal([2, 3]))
""",
    "ceil_in_a_jacobian": """
x = tf.Variable([1., 2.])
with tf.GradientTape() as tape:
    y = tf.stack([tf.math.ceil(x[0]), tf.math.ceil(x[1])])  #! Ceil
g = tape.jacobian(y, x)
""",
    "losses_as_floats": """
m = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
x = np.ones((4, 3), "float32")
losses = []
with tf.GradientTape() as tape:
    for i in range(4):
        losses.append(float(tf.reduce_mean(m(x[i : i + 1]) ** 2)))  #!
    loss = tf.reduce_mean(losses)
g = tape.gradient(loss, m.trainable_variables)
""",
    "binary_weights": """
class Binary(keras.layers.Layer):
    def build(self, shape):
        self.w = self.add_weight(shape=(shape[-1], 2))
    def call(self, x):
        return x @ tf.where(self.w >= 0., 1., -1.)  #! GreaterEqual
m = keras.Sequential([keras.Input((3,)), Binary()])
m.compile("sgd", "mse")
m.fit(np.ones((4, 3), "float32"), np.ones((4, 2), "float32"), verbose=0)
""",
    "assign_path": """
w = tf.Variable([1., 2.])
state = tf.Variable([0., 0.], trainable=False)
with tf.GradientTape() as tape:
    p = w * 3.
    state.assign(p)  #! AssignVariableOp
    loss = tf.reduce_sum(state ** 2)
g = tape.gradient(loss, [w])
""",
    "assign_path_graph": """
w = tf.Variable([1., 2.])
state = tf.Variable([0., 0.], trainable=False)
@tf.function
def step():
    with tf.GradientTape() as tape:
        p = w * 3.
        state.assign(p)  #! AssignVariableOp
        loss = tf.reduce_sum(state ** 2)
    return tape.gradient(loss, [w])
step()
""",
    "adjust_contrast": """
image = tf.Variable([[[0.5, 0.0, 0.0]]])
delta = tf.Variable(0.1)
with tf.GradientTape() as tape:
    new_image = tf.image.adjust_contrast(image, delta)  #! AdjustContrastv2
g = tape.gradient(new_image, [image, delta])
""",
    "assign_add": """
x0 = tf.Variable(3.0)
x1 = tf.Variable(0.0)
with tf.GradientTape() as tape:
    x1.assign_add(x0)  #! AssignAddVariableOp
    y = x1 ** 2
g = tape.gradient(y, x0)
""",
    "aux_loss_partial": """
enc = keras.layers.Dense(3); head = keras.layers.Dense(1); gate = keras.layers.Dense(3)
x = tf.random.normal((4, 3)); enc(x); head(x); gate(x)
vs = enc.trainable_variables + head.trainable_variables + gate.trainable_variables
@tf.function
def step(x):
    with tf.GradientTape() as tape:
        h = enc(x)
        m = tf.cast(tf.sigmoid(gate(x)) > 0.5, tf.float32)  #! Greater
        loss = tf.reduce_mean(head(h * m) ** 2)
    return tape.gradient(loss, vs)
step(x)
""",
    "bucketize": """
w = tf.Variable([1., 2.])
table = tf.constant([0.1, 0.2, 0.3])
@tf.function
def step():
    with tf.GradientTape() as tape:
        i = tf.searchsorted([0., 1., 5.], w * 2.)  #!
        v = tf.gather(table, i)
        loss = tf.reduce_sum(v)
    return tape.gradient(loss, [w])
step()
""",
    "confusion": """
def soft_f1(y_true, y_pred):
    cm = tf.math.confusion_matrix(tf.argmax(y_true, 1), tf.argmax(y_pred, 1), num_classes=3)  #! ArgMax
    cm = tf.cast(cm, tf.float32)
    return 1. - tf.linalg.trace(cm) / tf.reduce_sum(cm)
model = keras.Sequential([keras.layers.Dense(3, activation='softmax')])
model.compile('adam', soft_f1)
model.fit(np.random.rand(16, 3), np.eye(3)[np.random.randint(0, 3, 16)], verbose=0)
""",
    "count_nonzero": """
w = tf.Variable([1., -2., 3.])
@tf.function
def step():
    with tf.GradientTape() as tape:
        h = tf.nn.relu(w)
        n = tf.math.count_nonzero(h, dtype=tf.float32)  #! NotEqual
        loss = n * 0.1
    return tape.gradient(loss, [w])
step()
""",
    "embedding_float_index": """
emb = keras.layers.Embedding(10, 4); emb.build()
enc = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, activation='sigmoid')])
@tf.function
def step(x):
    with tf.GradientTape() as tape:
        idx = tf.cast(enc(x) * 9., tf.int32)  #! Cast
        e = emb(idx)
        loss = tf.reduce_mean(e ** 2)
    return tape.gradient(loss, enc.trainable_variables + emb.trainable_variables)
step(np.random.rand(4, 3).astype('float32'))
""",
    "floordiv": """
w = tf.Variable([1., 2.])
with tf.GradientTape() as tape:
    q = (w * 7.) // 2.  #! FloorDiv
    loss = tf.reduce_sum(q)
tape.gradient(loss, w)
""",
    "gan_predict": """
G = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
D = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
def step(noise, real):
    fake = G.predict(noise, verbose=0)  #!
    with tf.GradientTape() as gt, tf.GradientTape() as dt:
        s = D(fake)
        gl = tf.reduce_mean(s)
        dl = tf.reduce_mean(D(real)) - tf.reduce_mean(s)
    dg = dt.gradient(dl, D.trainable_variables)
    gg = gt.gradient(gl, G.trainable_variables)
step(np.random.rand(4, 2).astype('float32'), np.random.rand(4, 3).astype('float32'))
""",
    "int_constant": """
x = tf.constant([10, 20])  #!
with tf.GradientTape() as tape:
    tape.watch(x)
    y = tf.reduce_sum(x * x)
g = tape.gradient(y, x)
""",
    "item_detour_class": """
class Trainer:
    def __init__(self):
        self.model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        self.opt = keras.optimizers.Adam(0.01)
    def loss(self, x, y):
        p = self.model(x)
        err = np.abs(p - y)  #!
        return tf.reduce_mean(tf.constant(err, tf.float32))
    def step(self, x, y):
        with tf.GradientTape() as tape:
            l = self.loss(x, y)
        g = tape.gradient(l, self.model.trainable_variables)
        self.opt.apply_gradients(zip(g, self.model.trainable_variables))
Trainer().step(tf.ones((4, 3)), np.ones((4, 1), "float32"))
""",
    "loss_in_numpy_mse": """
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
x = np.random.rand(8, 3).astype('float32'); y = np.random.rand(8, 1).astype('float32')
opt = keras.optimizers.SGD(0.1)
for epoch in range(2):
    with tf.GradientTape() as tape:
        pred = model(x, training=True)
        residual = np.asarray(pred) - y  #!
        loss = tf.reduce_mean(tf.square(residual))
    grads = tape.gradient(loss, model.trainable_variables)
    opt.apply_gradients(zip(grads, model.trainable_variables))
""",
    "persistent_reused": """
w = tf.Variable([1., 2.])
tape = tf.GradientTape(persistent=True)
with tape:
    l1 = tf.reduce_sum(w * 2.)
g = tape.gradient(l1, w)
l2 = tf.reduce_sum(w * w)  #!
g = tape.gradient(l2, w)
""",
    "pyfunction": """
def f(a):
    return tf.constant(np.sort(a.numpy()))
w = tf.Variable([1., 2.])
@tf.function
def step():
    with tf.GradientTape() as tape:
        q = tf.py_function(f, [w * 2.], tf.float32)  #! EagerPyFunc
        loss = tf.reduce_sum(q)
    return tape.gradient(loss, [w])
step()
""",
    "replaced_variable": """
x = tf.Variable(2.0)
for epoch in range(2):
    with tf.GradientTape() as tape:
        y = x * x
    g = tape.gradient(y, x)
    x = x - 0.1 * g  #!
""",
    "reset": """
w = tf.Variable([1., 2.])
with tf.GradientTape() as tape:
    h = w * 3.  #! Mul
    tape.reset()
    loss = tf.reduce_sum(h)
g = tape.gradient(loss, w)
""",
    "stopgrad_gan": """
G = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
D = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
@tf.function
def step(noise):
    with tf.GradientTape() as gt:
        fake = G(noise)
        s = D(tf.stop_gradient(fake))  #! StopGradient
        gl = tf.reduce_mean(s)
    gg = gt.gradient(gl, G.trainable_variables)
step(np.random.rand(4, 2).astype('float32'))
""",
    "tfkeras_minimize": """
import tf_keras
w = tf.Variable([1., 2.])
opt = tf_keras.optimizers.SGD(0.1)
def loss():
    return tf.reduce_sum(tf.cast(w > 1.5, tf.float32))  #! Greater
opt.minimize(loss, [w])
""",
    "watch_accessed_false": """
w = tf.Variable([1., 2.])
with tf.GradientTape(watch_accessed_variables=False) as tape:
    loss = tf.reduce_sum(w * 3.)  #!
g = tape.gradient(loss, w)
""",
    "branch_cut_partial": """
a = tf.Variable([1., 2.]); b = tf.Variable([1., 2.])
with tf.GradientTape() as tape:
    h = a * 2.
    k = tf.math.ceil(b * 2.)  #! Ceil
    loss = tf.reduce_sum(h + k)
g = tape.gradient(loss, [a, b])
""",
    "categorical_sample": """
policy = keras.Sequential([keras.layers.Dense(4, activation='tanh'), keras.layers.Dense(2)])
@tf.function
def step(obs):
    with tf.GradientTape() as tape:
        logits = policy(obs)
        action = tf.random.categorical(logits, 1)  #! Multinomial
        loss = tf.reduce_mean(tf.cast(action, tf.float32))
    return tape.gradient(loss, policy.trainable_variables)
obs = tf.random.normal((4, 3)); policy(obs)
step(obs)
""",
    "custom_gradient_none": """
@tf.custom_gradient
def f(x):
    def grad(dy):
        return None
    return x * 2., grad
w = tf.Variable([1., 2.])
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(f(w * 1.))  #!
g = tape.gradient(loss, w)
""",
    "custom_train_step": """
class M(keras.Model):
    def __init__(self):
        super().__init__(); self.d = keras.layers.Dense(1)
    def call(self, x):
        return self.d(x)
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            p = self(x)
            acc = tf.equal(tf.sign(p) > 0, y > 0.5)  #! Greater
            loss = 1. - tf.reduce_mean(tf.cast(acc, tf.float32))
        g = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(g, self.trainable_variables))
        return {'loss': loss}
m = M(); m.compile('sgd')
m.fit(np.random.rand(16, 3), np.random.rand(16, 1), verbose=0)
""",
    "eager_argmax": """
w = tf.Variable(tf.random.normal((4, 3)))
x = tf.random.normal((8, 4)); y = tf.random.uniform((8,), 0, 3, tf.int64)
for step in range(2):
    with tf.GradientTape() as tape:
        logits = x @ w
        pred = tf.argmax(logits, axis=1)  #! ArgMax
        loss = tf.reduce_mean(tf.cast(pred != y, tf.float32))
    g = tape.gradient(loss, [w])
""",
    "eager_keras_round": """
model = keras.Sequential([keras.layers.Dense(4, activation='relu'), keras.layers.Dense(1)])
opt = keras.optimizers.SGD(0.1)
x = np.random.rand(8, 3).astype('float32'); y = np.random.rand(8, 1).astype('float32')
with tf.GradientTape() as tape:
    p = model(x)
    p = tf.round(p)  #! Round
    loss = tf.reduce_mean((p - y) ** 2)
g = tape.gradient(loss, model.trainable_variables)
opt.apply_gradients(zip(g, model.trainable_variables))
""",
    "fit_cast_int": """
def loss_fn(y_true, y_pred):
    k = tf.cast(y_pred * 10., tf.int32)  #! Cast
    return tf.reduce_mean(tf.abs(tf.cast(k, tf.float32) - y_true))
model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
model.compile('adam', loss_fn)
model.fit(np.random.rand(16, 3), np.random.rand(16, 1), verbose=0)
""",
    "fit_eagerly_floor": """
def loss_fn(y_true, y_pred):
    hard = tf.floor(y_pred + 0.5)  #! Floor
    return tf.reduce_mean(tf.abs(hard - y_true))
model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
model.compile('adam', loss_fn, run_eagerly=True)
model.fit(np.random.rand(16, 3), np.random.rand(16, 1), verbose=0)
""",
    "float_detour": """
w = tf.Variable([1., 2.])
with tf.GradientTape() as tape:
    p = tf.reduce_sum(w * 2.)
    v = float(p)  #!
    loss = tf.constant(v) * 3.
g = tape.gradient(loss, w)
""",
    "forward_before_tape": """
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
x = np.random.rand(8, 3).astype('float32')
p = model(x)  #!
with tf.GradientTape() as tape:
    loss = tf.reduce_mean(p ** 2)
g = tape.gradient(loss, model.trainable_variables)
""",
    "integer_variable": """
w = tf.Variable([1, 2])  #!
x = tf.constant([3., 4.])
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(tf.cast(w, tf.float32) * x)
g = tape.gradient(loss, [w])
""",
    "jit": """
w = tf.Variable(tf.random.normal((4, 1)))
@tf.function(jit_compile=True)
def step(x):
    with tf.GradientTape() as tape:
        k = tf.round(x @ w)  #! Round
        loss = tf.reduce_mean(k ** 2)
    g = tape.gradient(loss, [w])
    return loss
step(tf.ones((2, 4)))
""",
    "keras_layer_bins": """
layers = keras.layers
model = keras.Sequential([
    keras.Input((3,)),
    layers.Dense(2),
    layers.Discretization(bin_boundaries=[0.0, 0.5]),  #!
    layers.Lambda(lambda t: tf.cast(t, tf.float32), output_shape=(2,)),
])
model.compile('sgd', 'mse')
model.fit(np.random.rand(16, 3), np.random.rand(16, 2), verbose=0)
""",
    "loss_ignores_pred": """
def loss_fn(y_true, y_pred):
    return tf.reduce_mean(tf.square(y_true - y_true), axis=-1)  #!
model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
model.compile('adam', loss_fn)
model.fit(np.random.rand(16, 3), np.random.rand(16, 1), verbose=0)
""",
    "nested_function_round": """
@tf.function
def quantise(t):
    if tf.reduce_sum(t) > 0.:
        r = tf.round(t * 4.)  #! Round
    else:
        r = tf.stop_gradient(t)
    return r / 4.
w = tf.Variable([1., 2.])
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(quantise(w * 2.))
    return tape.gradient(loss, [w])
step()
""",
    "not_trainable": """
w = tf.Variable([1., 2.], trainable=False)  #!
with tf.GradientTape() as tape:
    z = tf.reduce_sum(w * w)
g = tape.gradient(z, [w])
""",
    "not_watched": """
x = tf.constant([1., 2.])
with tf.GradientTape() as tape:
    y = x * x  #! Mul
    z = tf.reduce_sum(y)
g = tape.gradient(z, x)
""",
    "not_watched_graph": """
@tf.function
def f(x):
    with tf.GradientTape() as tape:
        y = x * x  #! Mul
        z = tf.reduce_sum(y)
    return tape.gradient(z, x)
f(tf.constant([1., 2.]))
""",
    "np_function_eager": """
w = tf.Variable([1., 2.])
with tf.GradientTape() as tape:
    p = w * 2.
    q = tf.numpy_function(lambda a: a ** 2, [p], tf.float32)  #!
    loss = tf.reduce_sum(q)
g = tape.gradient(loss, w)
""",
    "np_in_lossfn": """
w = tf.Variable([1., 2.])
x = tf.constant([3., 4.])
def loss_fn(p):
    e = np.square(p)  #!
    return tf.reduce_mean(e)
def train():
    with tf.GradientTape() as tape:
        p = w * x
        loss = loss_fn(p)
    return tape.gradient(loss, [w])
train()
""",
    "np_mean_detour": """
w = tf.Variable([1., 2.])
x = tf.constant([3., 4.])
with tf.GradientTape() as tape:
    p = w * x
    m = np.mean(p)  #!
    loss = tf.square(tf.constant(m))
g = tape.gradient(loss, w)
""",
    "numpy_detour_eager": """
w = tf.Variable([1., 2.])
x = tf.constant([3., 4.])
with tf.GradientTape() as tape:
    p = w * x
    arr = p.numpy()  #!
    loss = tf.reduce_mean(tf.constant(arr) ** 2)
g = tape.gradient(loss, w)
""",
    "onehot_argmax_fit": """
def loss_fn(y_true, y_pred):
    top = tf.argmax(y_pred, axis=-1)  #! ArgMax
    hot = tf.one_hot(top, 3)
    return keras.losses.categorical_crossentropy(y_true, hot)
model = keras.Sequential([keras.layers.Dense(3, activation='softmax')])
model.compile('adam', loss_fn)
model.fit(np.random.rand(16, 3), np.eye(3)[np.random.randint(0, 3, 16)], verbose=0)
""",
    "outside_tape": """
w = tf.Variable([1., 2.])
with tf.GradientTape() as tape:
    p = w * 3.
loss = tf.reduce_sum(p ** 2)  #!
g = tape.gradient(loss, [w])
""",
    "outside_tape_graph": """
w = tf.Variable([1., 2.])
@tf.function
def step():
    with tf.GradientTape() as tape:
        p = w * 3.
    loss = tf.reduce_sum(p ** 2)  #!
    return tape.gradient(loss, [w])
step()
""",
    "predict_detour": """
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
x = np.random.rand(8, 3).astype('float32'); y = np.random.rand(8, 1).astype('float32')
with tf.GradientTape() as tape:
    p = model.predict(x, verbose=0)  #!
    loss = tf.reduce_mean((p - y) ** 2)
g = tape.gradient(loss, model.trainable_variables)
""",
    "python_if": """
w = tf.Variable(1.)
with tf.GradientTape() as tape:
    p = w * 2.
    if p > 1.:  #!
        loss = tf.constant(3.) * 2.
    else:
        loss = tf.constant(0.) * 2.
g = tape.gradient(loss, w)
""",
    "stop_gradient_all": """
model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1)])
class M(keras.Model):
    def __init__(self):
        super().__init__(); self.d = keras.layers.Dense(1)
    def call(self, x):
        h = self.d(x)
        return tf.stop_gradient(h)  #! StopGradient
model = M(); model.compile('sgd', 'mse')
model.fit(np.random.rand(16, 3), np.random.rand(16, 1), verbose=0)
""",
    "stop_recording": """
w = tf.Variable([1., 2.])
with tf.GradientTape() as tape:
    p = w * 2.
    with tape.stop_recording():
        q = p * p  #! Mul
    loss = tf.reduce_sum(q)
g = tape.gradient(loss, w)
""",
    "string_ops": """
w = tf.Variable([1., 2.])
@tf.function
def step():
    with tf.GradientTape() as tape:
        s = tf.strings.as_string(w * 2.)  #! AsString
        v = tf.strings.to_number(s)
        loss = tf.reduce_sum(v)
    return tape.gradient(loss, [w])
step()
""",
    "tape_twice": """
a = tf.Variable(1.); b = tf.Variable(2.)
with tf.GradientTape() as tape:
    l1 = a * b
    l2 = a + b
g1 = tape.gradient(l1, a)
g2 = tape.gradient(l2, b)  #!
""",
    "target_is_float": """
w = tf.Variable([1., 2.])
with tf.GradientTape() as tape:
    p = tf.reduce_sum(w * 2.)
    loss = p.numpy() * 3.  #!
g = tape.gradient(loss, w)
""",
    "tf_data_loop": """
w = tf.Variable(tf.random.normal((4, 1)))
ds = tf.data.Dataset.from_tensor_slices((tf.random.normal((16, 4)), tf.random.normal((16, 1)))).batch(4)
@tf.function
def epoch():
    for x, y in ds:
        with tf.GradientTape() as tape:
            p = x @ w
            k = tf.math.rint(p)  #! Rint
            loss = tf.reduce_mean((k - y) ** 2)
        g = tape.gradient(loss, [w])
        tf.print(len(g))
epoch()
""",
    "threshold_layer": """
class Hard(keras.layers.Layer):
    def call(self, x):
        gate = tf.cast(x > 0.5, x.dtype)  #! Greater
        return gate
model = keras.Sequential([keras.layers.Dense(4, activation='sigmoid'), Hard()])
model.compile('sgd', 'mse')
model.fit(np.random.rand(16, 3), np.random.rand(16, 4), verbose=0)
""",
    "unregistered": """
w = tf.Variable([1., 2., 3.])
@tf.function
def step():
    with tf.GradientTape() as tape:
        v = tf.nn.relu(w)
        q = tf.raw_ops.Bincount(arr=tf.constant([0, 1, 1]), size=2, weights=v)  #! Bincount
        loss = tf.reduce_sum(q)
    return tape.gradient(loss, [w])
step()
""",
    "where_cond_only": """
@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        p = tf.sigmoid(x @ w)
        hard = tf.where(p > 0.5, 1.0, 0.0)  #! Greater
        loss = tf.reduce_mean((hard - y) ** 2)
    g = tape.gradient(loss, [w])
    return g
w = tf.Variable(tf.random.normal((4, 1)))
step(tf.random.normal((8, 4)), tf.ones((8, 1)))
""",
    "wrong_model": """
a = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
b = keras.models.clone_model(a)
x = np.random.rand(8, 3).astype('float32')
def train():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(a(x) ** 2)
    return tape.gradient(loss, b.trainable_variables)  #!
train()
""",
    "bool_mask": """
w = tf.Variable(tf.random.normal((6, 1)))
def dice(y, p):
    p = tf.cast(tf.math.round(p), tf.bool)  #! Cast
    y = tf.cast(y, tf.bool)
    inter = tf.reduce_sum(tf.cast(tf.logical_and(p, y), tf.float32))
    return 1. - 2. * inter / 10.
@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = dice(y, tf.sigmoid(x @ w))
    g = tape.gradient(loss, [w])
    return g
step(tf.random.normal((4, 6)), tf.ones((4, 1)))
""",
    "jacobian": """
w = tf.Variable([1., 2., 3.])
with tf.GradientTape() as tape:
    y = tf.round(w * 2.)  #! Round
    z = y * 2.
j = tape.jacobian(z, w)
""",
    "list_numpy": """
emb = tf.Variable(tf.random.normal((5, 3)))
@tf.function
def embed(i):
    return tf.gather(emb, i)
def batch_loss(ids):
    vecs = [embed(i).numpy() for i in ids]  #!
    stacked = tf.stack(vecs)
    return tf.reduce_mean(stacked ** 2)
with tf.GradientTape() as tape:
    loss = batch_loss([1, 2])
tape.gradient(loss, [emb])
""",
    "saved_weights": """
enc = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
dec = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
x = np.random.rand(8, 3).astype("float32")
code = keras.ops.convert_to_numpy(enc(x))  #!
with tf.GradientTape() as tape:
    out = dec(code)
    loss = tf.reduce_mean((out - x) ** 2)
grads = tape.gradient(loss, enc.trainable_variables)
""",
    "tfgradients": """
w = tf.Variable([1., 2., 3.])
@tf.function
def f():
    y = tf.round(w * 2.)  #! Round
    return tf.gradients(tf.reduce_sum(y), [w])
f()
""",
}

FINE = {
    "gradient_penalty": """
d = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4, activation='relu'), keras.layers.Dense(1)])
@tf.function
def step(x):
    with tf.GradientTape() as tape:
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = d(x)
        gx = inner.gradient(y, x)
        loss = tf.reduce_mean(y) + tf.reduce_mean((tf.norm(gx, axis=1) - 1.) ** 2)
    g = tape.gradient(loss, d.trainable_variables)
    return loss
step(tf.random.normal((8, 3)))
with tf.GradientTape() as tape:
    x = tf.random.normal((8, 3))
    with tf.GradientTape() as inner:
        inner.watch(x)
        y = d(x)
    gx = inner.gradient(y, x)
    loss = tf.reduce_mean(y) + tf.reduce_mean((tf.norm(gx, axis=1) - 1.) ** 2)
g = tape.gradient(loss, d.trainable_variables)
""",
    "ste": """
w = tf.Variable([1., 2.])
for i in range(2):
    with tf.GradientTape() as tape:
        x = w * 2.
        h = x + tf.stop_gradient(tf.round(x) - x)
        loss = tf.reduce_sum(h)
    g = tape.gradient(loss, [w]); print(g, float(loss))
""",
    "target_net": """
q = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
t = keras.models.clone_model(q)
x = tf.random.normal((8, 3))
for i in range(2):
    with tf.GradientTape() as tape:
        v = tf.reduce_max(q(x), 1)
        y = tf.stop_gradient(tf.reduce_max(t(x), 1))
        loss = tf.reduce_mean((v - y) ** 2)
    g = tape.gradient(loss, q.trainable_variables)
    best = tf.argmax(q(x), 1).numpy()
""",
    "unused_head": """
a = tf.Variable([1., 2.]); b = tf.Variable([1., 2.])
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(a * 2.)
g = tape.gradient(loss, [a, b])
""",
    "partial_frozen_fit": """
base = keras.Sequential([keras.layers.Dense(4), keras.layers.BatchNormalization()]); base.trainable = False
model = keras.Sequential([base, keras.layers.Dense(1)])
model.compile('adam', 'mse')
model.fit(np.random.rand(16, 3), np.random.rand(16, 1), verbose=0)
""",
}


class Stops:
    """The reports of a run; the first one ends it."""

    def __init__(self) -> None:
        self.reports: list[Report] = []

    def __call__(self, trip: Any, origin: Any) -> None:
        assert trip.variables == tuple(trip.place.names)
        self.reports.append(origin.report)
        raise errors.Quit(1)


@pytest.fixture
def stops(tf: Any) -> Iterator[Stops]:
    """`watch none`, on."""
    stops = Stops()
    watching = Watching(stops)
    watching.start(["none"])
    yield stops
    watching.stop()


def run(source: str, folder: Path) -> int:
    """Run a program from a file, where AutoGraph can read it; returns the number of the marked line, or 0."""
    file = folder / "program.py"
    text = HEAD + source.strip() + "\n"
    file.write_text(text, encoding="utf-8")
    marked = [number for number, line in enumerate(text.splitlines(), 1) if "#!" in line]
    try:
        exec(compile(text, str(file), "exec"), {"__name__": "__main__", "__file__": str(file)})
    except errors.Quit:
        pass
    except Exception as error:  # a stop inside of a py_function's gradient comes back as an error of the graph
        if "Quit" not in str(error):
            raise
    return marked[0] if marked else 0


@pytest.mark.parametrize("name", LOST)
def test_the_cut_is_named(name: str, stops: Stops, tmp_path: Path) -> None:
    line = run(LOST[name], tmp_path)
    report = stops.reports[0]
    op = LOST[name].partition("#!")[2].splitlines()[0].strip()
    assert report.reason == "none-grad" and report.cause and report.fix
    assert report.line is not None and (Path(report.line.file).name, report.line.line) == ("program.py", line)
    assert not op or report.op == op


@pytest.mark.parametrize("name", FINE)
def test_sound_programs_are_left_alone(name: str, stops: Stops, tmp_path: Path) -> None:
    run(FINE[name], tmp_path)
    assert stops.reports == []


def test_what_is_none_on_purpose_is_named_when_asked_for(tf: Any, tmp_path: Path) -> None:
    stops = Stops()
    watching = Watching(stops)
    watching.start(["none in second"])
    try:
        run(
            """
a = tf.Variable([1., 2.], name="first"); b = tf.Variable([1., 2.], name="second")
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(a * 2.)
tape.gradient(loss, [a, b])
""",
            tmp_path,
        )
    finally:
        watching.stop()
    assert stops.reports[0].variables == ("second",) and stops.reports[0].watched == 2


def test_two_cuts_the_second_is_a_note(stops: Stops, tmp_path: Path) -> None:
    run(
        """
a = tf.Variable([1., 2.]); b = tf.Variable([1., 2.])
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(tf.round(a)) + tf.reduce_sum(tf.cast(b > 0., tf.float32))
tape.gradient(loss, [a, b])
""",
        tmp_path,
    )
    report = stops.reports[0]
    assert report.op in ("Round", "Greater") and len(report.notes) == 1


APART = {
    "ops": """
a, b, c, d = (tf.Variable([1.2, 2.7], name=name) for name in "abcd")
@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.round(a))
        loss += tf.cast(tf.argmax(b), tf.float32) + tf.reduce_sum(c ** 2)  #! of b
    return tape.gradient(loss, [a, b, c, d])
step()
""",
    "detours": """
a, b, d = (tf.Variable([1.2, 2.7], name=name) for name in "abd")
with tf.GradientTape() as tape:
    first = (b * 2.).numpy()  #! of b
    second = float(tf.reduce_sum(a * 3.))
    loss = tf.reduce_sum(first) * second
tape.gradient(loss, [a, b, d])
""",
}


@pytest.mark.parametrize("kind", APART)
def test_unrelated_cuts_are_named_with_their_own_variables(kind: str, stops: Stops, tmp_path: Path) -> None:
    line = run(APART[kind], tmp_path)
    report = stops.reports[0]
    assert report.explained == ("a",)
    assert set(report.variables) == {"a", "b", "d"}
    own, none = report.notes[:2]
    assert own.startswith("b: ") and own.endswith(f" · program.py:{line}")
    assert none.startswith("d: the loss is not computed from d")


def test_one_write_that_cuts_several_variables_off_is_one_cut(stops: Stops, tmp_path: Path) -> None:
    run(
        """
a = tf.Variable([1., 2.]); b = tf.Variable([1., 2.]); kept = tf.Variable([0., 0.])
with tf.GradientTape() as tape:
    kept.assign((a * 2.) * (b * 2.))
    loss = tf.reduce_sum(kept ** 2)
tape.gradient(loss, [a, b])
""",
        tmp_path,
    )
    report = stops.reports[0]
    assert (report.op, report.variables, report.notes) == ("AssignVariableOp", ("a", "b"), ())


def test_nothing_stays_hooked(tf: Any, tmp_path: Path) -> None:
    before = {name: getattr(tf.GradientTape, name) for name in ("gradient", "watch", "_push_tape", "_pop_tape")}
    watching = Watching(Stops())
    watching.start(["none"])
    assert tf.GradientTape.gradient is not before["gradient"]
    watching.stop()
    assert {name: getattr(tf.GradientTape, name) for name in before} == before
    assert not tapes.log.ops and not tapes.log.logging and not nonegrads.watch.patches.saved


def test_the_screen_says_what_and_where(stops: Stops, tmp_path: Path) -> None:
    run(LOST["eager_argmax"], tmp_path)
    text = screens.watch_screen(stops.reports[0], 80)
    assert text.startswith("No gradient for 1 of 1\n  origin    ArgMax  program.py:10")
    assert "ArgMax gives positions (int64)" in text and "fix" in text
